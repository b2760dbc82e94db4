"""The few operators that a graph has in another form than export gives them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import fx

_ANY_LAYOUT: Final = {torch.ops.aten.view.default: torch.ops.aten.reshape.default}
"""``view`` refuses layouts that the capturing machine did not see: kernels of other devices and torch builds
lay their outputs out differently. ``reshape`` is ``view`` wherever that works, with the same gradient."""

_FROM_SHAPE: Final = {
    "aten.zeros_like.default": "aten.zeros.default",
    "aten.ones_like.default": "aten.ones.default",
    "aten.full_like.default": "aten.full.default",
    "aten.new_zeros.default": "aten.zeros.default",
    "aten.new_ones.default": "aten.ones.default",
    "aten.new_full.default": "aten.full.default",
}
"""Shapes are static, so these need no other tensor, and a stage recomputes what it would have to be sent."""

_UNINITIALISED: Final = frozenset({
    "aten.empty.memory_format", "aten.empty_like.default", "aten.new_empty.default",
    "aten.empty_strided.default", "aten.new_empty_strided.default", "aten.empty_permuted.default",
})  # fmt: skip
"""Memory with whatever was in it: zeros, or peers would differ, and read each other's leftovers."""

_FILL_POSITION: Final = {"aten.full_like.default": 1, "aten.new_full.default": 2}

_ONE_LEGAL_VALUE: Final = frozenset({"layout", "pin_memory"})
"""Arguments that are strided and unpinned for every tensor that travels."""


def rewritten(node: fx.Node) -> tuple[str, Sequence[Any], Mapping[str, Any]]:
    """Target, positional and named arguments of the operator at ``node``, as the graph has them."""
    name = str(node.target)
    if name in _UNINITIALISED:
        return _made_from_numbers("aten.zeros.default", node)
    if name in _FROM_SHAPE and node.meta["val"].is_contiguous():
        return _made_from_numbers(_FROM_SHAPE[name], node)
    kwargs = {key: value for key, value in node.kwargs.items() if key not in _ONE_LEGAL_VALUE}
    return str(for_any_layout(node.target)), node.args, kwargs


def for_any_layout(target: Any) -> Any:
    """The operator that does what ``target`` does, for tensors of any layout."""
    return _ANY_LAYOUT.get(target, target)


def _made_from_numbers(target: str, node: fx.Node) -> tuple[str, Sequence[Any], Mapping[str, Any]]:
    result: torch.Tensor = node.meta["val"]
    position = _FILL_POSITION.get(str(node.target))
    fill = [] if position is None else [node.args[position]]
    return target, (list(result.shape), *fill), {"dtype": result.dtype, "device": result.device}
