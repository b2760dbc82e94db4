"""Preconditions on the elements of tensors: the part of the operators' contracts that no shape can show.

They cost a pass over a tensor of whole numbers at each call, so they stand only where torch does not look: on
the CPU for few operators, and elsewhere also for indices: out of range, one ends every job of the process on
CUDA and XPU, and reads what is not its own on MPS.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from swarm.train.contracts import Given, require


def value_check(target: str, device: torch.device) -> Callable[[Given], None] | None:
    """What raises ContractError where the elements forbid a call of ``target`` on ``device``, if anything."""
    name = target.removeprefix("aten.")
    found = ON_VALUES.get(name)
    if found is None and device.type != "cpu":
        found = ON_ACCELERATORS.get(name.partition(".")[0])
    return found


def _integer_division(given: Given) -> None:
    """The least number divided by -1 has no quotient: processors trap it."""
    left, right = given["self"], given["other"]
    dtype = torch.result_type(left, right)
    if dtype.is_floating_point or dtype is torch.bool:
        return
    least = torch.iinfo(dtype).min
    if least < 0 and _has(right, -1):
        require(not _has(left, least), f"{least} cannot be divided by -1")


def _has(operand: Any, number: int) -> bool:
    if isinstance(operand, torch.Tensor):
        return bool((operand == number).any())
    return bool(operand == number)


def _fractions(given: Given) -> None:
    samples = given["random_samples"]
    require(bool(((samples >= 0) & (samples < 1)).all()), "random samples are from 0 up to but without 1")


def _places(given: Given) -> None:
    """Places to sample at are numbers: gradients of others are written to where there is no image."""
    require(bool(torch.isfinite(given["grid"]).all()), "the grid is not finite")


def _within(index: Any, size: int, *, negative: bool = True) -> None:
    """Every element of ``index`` names one of ``size`` places."""
    if isinstance(index, torch.Tensor) and index.numel() and index.dtype not in {torch.bool, torch.uint8}:
        least, most = torch.aminmax(index)
        require(int(least) >= (-size if negative else 0), f"index {int(least)} is out of range for {size}")
        require(int(most) < size, f"index {int(most)} is out of range for {size}")


def _along(name: str = "index") -> Callable[[Given], None]:
    def judge(given: Given) -> None:
        tensor, dim = given["self"], given["dim"] or 0
        _within(given[name], tensor.shape[dim] if tensor.dim() else 1, negative=False)

    return judge


def _flat(given: Given) -> None:
    _within(given["index"], given["self"].numel())


def _by_dimension(given: Given) -> None:
    indices: Sequence[torch.Tensor | None] = given["indices"]
    dimension = 0
    for index in indices:
        if index is not None and index.dtype in {torch.bool, torch.uint8}:
            dimension += index.dim()
            continue
        _within(index, given["self"].shape[dimension])
        dimension += 1


def _anywhere(given: Given) -> None:
    if given["dim"] is None:
        _within(given["indices"], given["self"].numel())
    else:
        _along("indices")(given)


def _rows(given: Given) -> None:
    _within(given["indices"], given["weight"].shape[0], negative=False)


def _bags(given: Given) -> None:
    _rows(given)
    offsets, count = given["offsets"], given["indices"].numel()
    _within(offsets, count + 1, negative=False)
    if offsets.numel():
        falls = bool((offsets[1:] < offsets[:-1]).any())
        require(not falls and int(offsets[0]) == 0, "offsets must rise from 0")


def _labels(given: Given) -> None:
    target, classes = given["target"], given["self"].shape[-1] if given["self"].dim() else 1
    _within(target + 1, classes + 1, negative=False)


def _classes(given: Given) -> None:
    """Targets are classes, but for the one that is ignored."""
    target, scores = given["target"], given["self"]
    if not target.is_floating_point():
        classes = scores.shape[1] if scores.dim() > 1 else scores.shape[0]
        ignored = given.get("ignore_index", -1)
        _within(torch.where(target == ignored, 0, target), classes, negative=False)


def _hot(given: Given) -> None:
    _within(given["self"], given["num_classes"], negative=False)


ON_VALUES: Final[dict[str, Callable[[Given], None]]] = {
    **dict.fromkeys(
        (
            "div.Tensor_mode",
            "div.Scalar_mode",
            "divide.Tensor_mode",
            "divide.Scalar_mode",
            "floor_divide.default",
            "floor_divide.Scalar",
            "remainder.Tensor",
            "remainder.Scalar",
            "remainder.Scalar_Tensor",
            "fmod.Tensor",
            "fmod.Scalar",
        ),
        _integer_division,
    ),
    "grid_sampler.default": _places,
    "grid_sampler_2d.default": _places,
    "grid_sampler_3d.default": _places,
    "fractional_max_pool2d.default": _fractions,
    "fractional_max_pool3d.default": _fractions,
    "embedding_bag.default": _bags,
    "embedding_bag.padding_idx": _bags,
    "_embedding_bag.default": _bags,
}
"""By the operator's name; wherever it runs."""

ON_ACCELERATORS: Final[dict[str, Callable[[Given], None]]] = {
    **dict.fromkeys(
        ("gather", "index_select", "index_add", "index_copy", "index_fill", "index_reduce"), _along()
    ),
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), _along()),
    "take_along_dim": _anywhere,
    **dict.fromkeys(("take", "put"), _flat),
    **dict.fromkeys(("index", "index_put"), _by_dimension),
    "embedding": _rows,
    **dict.fromkeys(("multilabel_margin_loss", "multilabel_margin_loss_forward"), _labels),
    **dict.fromkeys(
        (
            "cross_entropy_loss",
            "nll_loss",
            "nll_loss2d",
            "nll_loss_nd",
            "nll_loss_forward",
            "nll_loss2d_forward",
            "multi_margin_loss",
        ),
        _classes,
    ),
    "one_hot": _hot,
}
"""By the name without overload, for a device where an index out of range cannot be taken back."""
