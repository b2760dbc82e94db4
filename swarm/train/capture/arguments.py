"""Arguments of operators and specifications of tensors, in the closed types of the graph."""

from collections.abc import Mapping
from typing import Any, Final, cast, get_args

import torch
from torch import fx

from swarm.graph import dag
from swarm.train.capture.places import Place, Refusal, of_node
from swarm.wire.limits import MAX_DIMENSIONS
from swarm.wire.tensors import DType

VALUE_DEPENDENT_SHAPE: Final = (
    "the shape of a tensor depends on the values of another, and every micro-batch must have the same "
    "shapes; use torch.where or a mask instead of selecting by value"
)
VALUE_READ: Final = (
    "a number is read from the values of a tensor, by .item() or .tolist() for example, and every sample "
    "must take the same operators; keep it a tensor"
)
_DTYPES: Final = frozenset(get_args(DType))
_MEMORY_FORMATS: Final[dict[torch.memory_format, dag.MemoryFormat]] = {
    torch.contiguous_format: dag.MemoryFormat("contiguous_format"),
    torch.preserve_format: dag.MemoryFormat("preserve_format"),
    torch.channels_last: dag.MemoryFormat("channels_last"),
    torch.channels_last_3d: dag.MemoryFormat("channels_last_3d"),
}
_LONGEST_STRING: Final = 64


def dtype_name(dtype: torch.dtype, place: Place | None = None) -> DType:
    """The graph's name of ``dtype``; raises Refusal for one that does not travel, such as complex64."""
    name = str(dtype).removeprefix("torch.")
    if name not in _DTYPES:
        raise Refusal(
            f"tensors of type {name} do not travel; cast to one of {', '.join(sorted(_DTYPES))}", place
        )
    return cast("DType", name)


def spec_of(tensor: torch.Tensor, place: Place | None = None) -> dag.TensorSpec:
    """Type, shape and strides of ``tensor``; raises Refusal where they are not fixed numbers."""
    if tensor.layout is not torch.strided:
        raise Refusal("sparse tensors do not travel; make them dense with to_dense()", place)
    if tensor.dim() > MAX_DIMENSIONS:
        raise Refusal(f"a tensor has {tensor.dim()} dimensions, at most {MAX_DIMENSIONS} travel", place)
    if any(isinstance(size, torch.SymInt) for size in (*tensor.shape, *tensor.stride())):
        raise Refusal(VALUE_DEPENDENT_SHAPE, place)
    return dag.TensorSpec(
        dtype=dtype_name(tensor.dtype, place), shape=tuple(tensor.shape), strides=tuple(tensor.stride())
    )


def argument(value: Any, values: Mapping[fx.Node, int], node: fx.Node) -> dag.Argument:
    """``value`` as an argument of the operator at ``node``; ``values`` maps nodes to the graph's values."""
    match value:
        case fx.Node():
            return _reference(value, values, node)
        case bool() | int() | float() | None:
            return dag.Scalar(value)
        case str() if len(value) <= _LONGEST_STRING:
            return dag.Scalar(value)
        case torch.dtype():
            return dag.TypeName(dtype_name(value, of_node(node)))
        case torch.memory_format():
            return _MEMORY_FORMATS[value]
        case torch.device():
            return dag.Device()
        case tuple() | list():
            return dag.Sequence(tuple(_item(item, values, node) for item in value))
        case _:
            raise _refused(value, node)


def _item(value: Any, values: Mapping[fx.Node, int], node: fx.Node) -> dag.Item:
    made = argument(value, values, node)
    if isinstance(made, dag.Sequence):
        raise _refused(value, node)
    return made


def _refused(value: object, node: fx.Node) -> Refusal:
    kind = type(value).__name__
    return Refusal(
        f"the operator {node.target} has an argument of type {kind}, which a graph cannot hold; "
        "write it with numbers and tensors",
        of_node(node),
    )


def _reference(value: fx.Node, values: Mapping[fx.Node, int], node: fx.Node) -> dag.Argument:
    known = value.meta.get("val")
    if value in values:
        return dag.Ref(values[value])
    if isinstance(known, bool | int | float):
        return dag.Scalar(known)
    if isinstance(known, torch.SymInt | torch.SymFloat | torch.SymBool):
        raise Refusal(VALUE_READ, of_node(value) if of_node(value).source else of_node(node))
    raise Refusal(f"{node.target} reads the result of {value.target}, which is not a tensor", of_node(node))
