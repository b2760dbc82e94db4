"""Operators whose kernels cannot be trusted with memory, and what runs in their place (decision D4).

A job's operators are its author's choice, so one that writes where it should not is a stranger's way to end a
peer, or worse. Seen with torch 2.13.0 on a CPU with AVX2: oneDNN's weight gradient of a pointwise convolution
with a stride, channels last, writes past its buffer where there are fewer than 8 channels.
"""

from collections.abc import Callable
from typing import Any, Final

import torch

from swarm.graph.dag import Argument, Graph, Operator, Scalar, Sequence, TensorSpec, references

CONVOLUTIONS: Final = frozenset(
    f"aten.{name}"
    for name in (
        "conv1d.default",
        "conv1d.padding",
        "conv2d.default",
        "conv2d.padding",
        "conv3d.default",
        "conv3d.padding",
        "convolution.default",
        "_convolution.default",
    )
)
_STRIDE: Final = 3
"""Where their strides are among their arguments."""

_LAST: Final = {4: torch.channels_last, 5: torch.channels_last_3d}
"""The memory format that has channels last, by the number of dimensions."""

Call = Callable[..., Any]


def sound(call: Call, operator: Operator, graph: Graph, device: torch.device) -> Call:
    """What to run for ``operator``, which is ``call``, on ``device``."""
    (made,) = operator.outputs[:1]
    if device.type != "cpu" or operator.target not in CONVOLUTIONS or made < 0 or not _is_strided(operator):
        return call
    given = [*operator.args[1:2], *(argument for name, argument in operator.kwargs if name == "weight")]
    kernels = [graph.values[value].spec.shape[2:] for argument in given for value in references(argument)]
    if any(set(kernel) != {1} for kernel in kernels):
        return call
    return _channels_first(call, graph.values[made].spec)


def _is_strided(operator: Operator) -> bool:
    """Whether it passes over places; unless it is plain that it does not."""
    given = [*operator.args[_STRIDE : _STRIDE + 1], *(a for name, a in operator.kwargs if name == "stride")]
    return any(_numbers(argument) != {1} for argument in given)


def _numbers(argument: Argument) -> set[object]:
    items = argument.items if isinstance(argument, Sequence) else (argument,)
    return {item.value if isinstance(item, Scalar) else item for item in items}


def _channels_first(convolve: Call, made: TensorSpec) -> Call:
    """The same convolution with channels first; what it returns lies as it did where it was captured."""
    last = _LAST.get(len(made.shape))
    meta = torch.empty_strided(made.shape, made.strides, device="meta")
    if last is None or meta.is_contiguous() or not meta.is_contiguous(memory_format=last):
        last = torch.preserve_format

    def run(
        input: torch.Tensor,  # noqa: A002 - torch's name
        weight: torch.Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> torch.Tensor:
        found: torch.Tensor = convolve(_plain(input), _plain(weight), *args, **kwargs)
        return found if last is torch.preserve_format else found.contiguous(memory_format=last)

    return run


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with channels first, also by the strides of dimensions of one element, which torch looks at."""
    return tensor.clone(memory_format=torch.contiguous_format)
