"""What operators must be given, where torch itself does not look: a table of preconditions by operator.

torch trusts its callers in places: some kernels read and write beyond a tensor that is shorter than another,
end the process by dividing, or loop as often as they are told. Here every call is judged before it is made:

* once, when a stage is loaded: sizes, types and numbers (:func:`check_arguments`), which never change;
* at each call, for the few operators in :data:`swarm.train.contracts_values.ON_VALUES`: the elements.

An operator for which no such precondition suffices is not on the allow-list.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from swarm.wire.limits import MIB

Given = Mapping[str, Any]
"""The arguments of one call by the names of torch's schema, defaults included."""

LARGEST: Final = 2**31 - 1
"""Largest size, stride, count or position: beyond it, products of sizes overflow inside of torch."""

MAX_OUTPUTS: Final = 4096
"""Tensors that one operator may return, as in a graph."""

MAX_POWER: Final = 1024
"""Exponent of a matrix power, which is computed by multiplying."""

MAX_GAMMA: Final = 64
"""Dimensions of a multivariate gamma function, each of which takes memory like the input's."""

HIDDEN_FACTOR: Final = 64
HIDDEN_BYTES: Final = 64 * MIB
"""Memory that an operator may take inside: so many times its inputs and outputs, and so much more. The plan
counts twice the largest operator's inputs and outputs; what is more than that is short-lived."""

UNFOLDED_PART: Final = 8
"""Convolutions whose kernels unfold their input take its elements once for each of the kernel's; a kernel of
7 x 7 x 7 takes 343 times its input, and must be possible."""

_UNFOLDING: Final = frozenset(
    f"{kind}{dims}d" for kind in ("conv", "conv_transpose") for dims in (1, 2, 3)
) | {"convolution", "_convolution"}

_UNBOUNDED: Final = frozenset({"start", "end", "low", "high", "from", "to", "ignore_index", "fill_value"})
"""Whole numbers that are values or open ends, and no sizes."""


_KINDS: Final[dict[str, type]] = {
    "ScalarType": torch.dtype,
    "MemoryFormat": torch.memory_format,
    "Layout": torch.layout,
    "Device": torch.device,
}
"""What torch would also take as numbers, whichever they are."""


class ContractError(ValueError):
    """A call that must not be made; the text says what is wrong with its arguments."""


def named(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``call`` by name; raises ContractError for more or others than it has."""
    parameters = call._schema.arguments  # noqa: SLF001  its only name
    names = [parameter.name for parameter in parameters]
    if len(args) > len(names) or not set(kwargs) <= set(names[len(args) :]):
        raise ContractError("it was given arguments that it does not have")
    given = {p.name: p.default_value for p in parameters if p.has_default_value()}
    return given | dict(zip(names, args, strict=False)) | dict(kwargs)


def check_arguments(target: str, call: Any, given: Given) -> None:
    """Raise ContractError where ``call``, named ``target``, must not be made with arguments like ``given``.

    Tensors may be without data: only their types and shapes count.
    """
    for parameter in call._schema.arguments:  # noqa: SLF001
        name = parameter.name
        value = given.get(name)
        kind = _KINDS.get(str(parameter.real_type).removeprefix("Optional[").removesuffix("]"))
        if kind is not None:
            usual = isinstance(value, int) and parameter.has_default_value()
            known = isinstance(value, kind) or (usual and value == parameter.default_value)
            require(value is None or known, f"{name} is of another kind")
        elif name not in _UNBOUNDED and "int" in str(parameter.type):
            _check_range(name, value)
    judge = _CONTRACTS.get(target.split(".")[1])
    if judge is not None:
        judge(given)


def hidden_bytes(target: str, given: Given, made: Sequence[torch.Tensor]) -> int:
    """Bytes that a call takes inside of one kernel, where that is more than a few times its tensors."""
    match target.split(".")[1]:
        case name if name in _UNFOLDING:
            weight, places = given["weight"], given["input"] if "transpose" in name else made[0]
            columns: int = weight[0].numel() * (places.numel() // max(places.shape[1], 1))
            return columns * int(weight.element_size()) // UNFOLDED_PART
        case "bilinear":
            one, two = given["input1"], given["input2"]
            return int(one.numel() * _size(two, -1) * one.element_size())
        case _:
            return 0


def check_hidden(read: Iterable[torch.Tensor], made: Iterable[torch.Tensor], hidden: int) -> None:
    """Raise ContractError where ``hidden`` bytes inside of a call are out of proportion to its tensors."""
    known = sum(tensor.nbytes for tensor in (*read, *made))
    if hidden > HIDDEN_FACTOR * known + HIDDEN_BYTES:
        raise ContractError(f"it would take {hidden} bytes inside for {known} bytes of inputs and outputs")


def _check_range(name: str, value: Any) -> None:
    numbers = value if isinstance(value, list | tuple) else [value]
    for number in numbers:
        if isinstance(number, int) and not isinstance(number, bool) and not -LARGEST <= number <= LARGEST:
            raise ContractError(f"{name} has {number}, and nothing has so many")


def require(holds: bool, otherwise: str) -> None:
    """Raise ContractError unless ``holds``."""
    if not holds:
        raise ContractError(otherwise)


def _batch_norm(given: Given) -> None:
    """Statistics, scale and shift have one element a channel: kernels read and write them by channel."""
    channels = _size(given["input"], 1)
    for name in ("weight", "bias", "running_mean", "running_var"):
        tensor = given.get(name)
        if tensor is not None:
            require(tuple(tensor.shape) == (channels,), f"{name} must have the shape ({channels},)")


def _group_norm(given: Given) -> None:
    groups = given["group"]
    require(groups > 0 and given["C"] > 0, "groups and channels must be positive")
    require(given["N"] * given["C"] * given["HxW"] == given["input"].numel(), "N, C, HxW are not the input's")


def _recurrent(gates: int) -> Callable[[Given], None]:
    """Weights of every layer and direction in the sizes that the states call for: ``torch.nn.RNNBase``."""

    def judge(given: Given) -> None:
        states = given["hx"] if isinstance(given["hx"], list | tuple) else [given["hx"]]
        require(len(states) == (2 if gates == 4 else 1), "it has another number of states")
        layers, directions = given["num_layers"], 2 if given["bidirectional"] else 1
        cell, out = _size(states[-1], -1), _size(states[0], -1)
        projected = cell != out
        each = (4 if given["has_biases"] else 2) + (1 if projected else 0)
        require(layers > 0 and len(given["params"]) == layers * directions * each, "it has other parameters")
        require(given["input"].dim() == 3, "the input must have three dimensions")
        batch = given["input"].shape[0 if given["batch_first"] else 1]
        for state, width in zip(states, (out, cell), strict=False):
            require(tuple(state.shape) == (layers * directions, batch, width), "a state has another shape")
        for index in range(layers * directions):
            width = given["input"].shape[2] if index < directions else out * directions
            shapes: list[tuple[int, ...]] = [(gates * cell, width), (gates * cell, out)]
            shapes += [(gates * cell,)] * (2 if given["has_biases"] else 0) + [(out, cell)] * projected
            found = [tuple(tensor.shape) for tensor in given["params"][index * each : (index + 1) * each]]
            require(found == shapes, f"the parameters of layer {index} have shapes {found}, not {shapes}")

    return judge


def _resampling(given: Given) -> None:
    """Scales say what sizes say already; kernels that trust them reach beyond the input."""
    tensor = given.get("self", given.get("input"))
    scales = [given[name] for name in ("scales", "scales_d", "scales_h", "scales_w") if name in given]
    scales = list(given["scale_factors"] or []) if "scale_factors" in given else scales
    size = given.get("output_size")
    spatial = list(tensor.shape[2:]) if tensor is not None else []
    require(bool(spatial) and min(spatial) > 0, "the input has no elements")
    if size is not None:
        require(len(size) == len(spatial) and min(size) > 0, "the output size is not positive")
    for position, scale in enumerate(scales):
        if scale is not None:
            require(1e-4 <= scale <= 1e4 and position < len(spatial), f"a scale of {scale} is none")
            if size is not None:
                off = abs(spatial[position] * scale - size[position])
                require(off <= 1, f"a scale of {scale} does not make {size[position]}")


def _convolution(given: Given) -> None:
    """Unfolded, an input has the kernel's volume of elements for each of the output's places."""
    weight = given["weight"]
    require(given["groups"] > 0, "groups must be positive")
    require(weight.dim() >= 3 and weight.numel() > 0, "the weight has no elements")


def _matrix_power(given: Given) -> None:
    require(abs(given["n"]) <= MAX_POWER, f"an exponent of more than {MAX_POWER} is not computed")


def _gamma(given: Given) -> None:
    require(given["p"] <= MAX_GAMMA, f"more than {MAX_GAMMA} dimensions are not computed")


def _weight_norm(given: Given) -> None:
    """One magnitude for each slice of the direction; dimension -1 stands for a single one."""
    direction, magnitude, dim = given["v"], given["g"], given["dim"]
    wanted = [1] * direction.dim()
    if dim != -1:
        wanted[dim] = _size(direction, dim)
    require(direction.dim() > 0 and list(magnitude.shape) == wanted, f"the magnitude's shape is not {wanted}")


def _grid(modes: int) -> Callable[[Given], None]:
    def judge(given: Given) -> None:
        require(0 <= given["interpolation_mode"] < modes, "there is no such way to interpolate")
        require(0 <= given["padding_mode"] < 3, "there is no such way to pad")

    return judge


def _bags(given: Given) -> None:
    """There is a bag, so that whoever looks for the first one finds it."""
    least = 2 if given["include_last_offset"] else 1
    require(given["offsets"].dim() == 1 and given["offsets"].numel() >= least, "there is no bag")
    require(given["indices"].dim() == 1 and given["weight"].dim() == 2, "indices or weight are no bags'")


def _distances(given: Given) -> None:
    """The gradient of no distances is written to a point that is not there."""
    require(_size(given["self"], 0) > 0, "there are no points")


def _one_hot(given: Given) -> None:
    require(given["num_classes"] > 0, "the number of classes must be given")


def _view(given: Given) -> None:
    kinds = {given["self"].dtype, given.get("dtype", given["self"].dtype)}
    require(len(kinds) == 1 or torch.bool not in kinds, "truth values are not other numbers seen differently")


def _pieces(given: Given) -> None:
    """No more pieces than an operator may return, counted before they are made."""
    length = _size(given["self"], given.get("dim", 0))
    size = given.get("split_size", given.get("split_sizes", given.get("indices")))
    if isinstance(size, list | tuple):
        pieces = len(size) + 1
    elif size is not None:
        require(size > 0 or length == 0, "pieces must have a positive size")
        pieces = -(-length // max(size, 1))
    else:
        pieces = given.get("chunks", given.get("sections", length))
    require(0 <= pieces <= MAX_OUTPUTS, f"{pieces} pieces are more than an operator may return")


def _size(tensor: torch.Tensor, dim: int) -> int:
    require(-tensor.dim() <= dim < tensor.dim(), f"there is no dimension {dim}")
    return tensor.shape[dim]


_CONTRACTS: Final[dict[str, Callable[[Given], None]]] = {
    **dict.fromkeys(
        (
            "_native_batch_norm_legit",
            "_native_batch_norm_legit_functional",
            "_native_batch_norm_legit_no_training",
            "_batch_norm_no_update",
            "_batch_norm_with_update_functional",
        ),
        _batch_norm,
    ),
    "native_group_norm": _group_norm,
    "lstm": _recurrent(4),
    "gru": _recurrent(3),
    "rnn_tanh": _recurrent(1),
    "rnn_relu": _recurrent(1),
    **dict.fromkeys(
        (
            "upsample_bicubic2d",
            "upsample_bilinear2d",
            "upsample_linear1d",
            "upsample_nearest1d",
            "upsample_nearest2d",
            "upsample_nearest3d",
            "upsample_trilinear3d",
            "_upsample_nearest_exact1d",
            "_upsample_nearest_exact2d",
            "_upsample_nearest_exact3d",
            "_upsample_bilinear2d_aa",
            "_upsample_bicubic2d_aa",
        ),
        _resampling,
    ),
    **dict.fromkeys(
        (
            "conv1d",
            "conv2d",
            "conv3d",
            "conv_transpose1d",
            "conv_transpose2d",
            "conv_transpose3d",
            "convolution",
            "_convolution",
        ),
        _convolution,
    ),
    "matrix_power": _matrix_power,
    "linalg_matrix_power": _matrix_power,
    "pdist": _distances,
    "mvlgamma": _gamma,
    "_weight_norm": _weight_norm,
    "_weight_norm_interface": _weight_norm,
    "grid_sampler": _grid(3),
    "grid_sampler_2d": _grid(3),
    "grid_sampler_3d": _grid(2),
    "embedding_bag": _bags,
    "_embedding_bag": _bags,
    "one_hot": _one_hot,
    "view": _view,
    **dict.fromkeys(
        (
            "split",
            "split_copy",
            "split_with_sizes",
            "split_with_sizes_copy",
            "unsafe_split",
            "unsafe_split_with_sizes",
            "chunk",
            "unsafe_chunk",
            "tensor_split",
            "unbind",
            "unbind_copy",
        ),
        _pieces,
    ),
}
"""By the operator's name without its overload; raises ContractError."""
