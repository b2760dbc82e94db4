"""What a stage will make, found without data: shapes and types of every operator's outputs, before it runs.

The specifications in a graph are claims: memory is planned by them, and links are judged by them. Here each
operator is called on tensors that have a shape and a type and no memory, and what it says is compared with
the claims. So a graph that lies, or asks an operator for what it cannot do, is refused when it is loaded.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import prod
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils._python_dispatch import TorchDispatchMode

from swarm.compress.layout import DTYPES
from swarm.errors import TrainingError
from swarm.graph.dag import Argument, Graph, Operator, Ref, Scalar, Sequence, operator_inputs
from swarm.ids import OperatorIndex, ValueId
from swarm.train.contracts import ContractError, check_arguments, check_hidden, hidden_bytes, named
from swarm.train.failures import described, failing
from swarm.train.program_arguments import Template, resolve
from swarm.train.tensors import check_made, travelling_strides

_CPU = torch.device("cpu")
_TORCH_LOG = logging.getLogger(FakeTensorMode.__module__)

NOT_KNOWN: Final = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    NotImplementedError,
    UnsupportedOperatorException,
)
"""What torch raises where it cannot tell without data."""


def check_operators(graph: Graph, operators: Iterable[OperatorIndex]) -> None:
    """Raise TrainingError, naming the operator, unless each of ``operators`` makes what ``graph`` says.

    RemoteProtocolError for one that is not allowed, FailureError for one that this torch lacks. Costs about
    half a millisecond an operator of each kind, and no memory for tensors.
    """
    known: dict[Any, list[torch.Tensor]] = {}
    with without_data():
        for index in operators:
            operator = graph.operators[index]
            kind = _kind(graph, operator)
            if kind not in known:
                known[kind] = _inferred(graph, operator)
            for output, tensor in zip(operator.outputs, known[kind], strict=True):
                if output >= 0:
                    check_made(tensor, graph.values[output], described(operator))


@contextlib.contextmanager
def without_data() -> Iterator[FakeTensorMode]:
    """While the block runs, new tensors have no elements, and torch does not log what it then raises."""
    silenced = _TORCH_LOG.disabled
    _TORCH_LOG.disabled = True
    try:
        with FakeTensorMode(allow_fallback_kernels=False) as mode, torch.no_grad():
            yield mode
    finally:
        _TORCH_LOG.disabled = silenced


def _kind(graph: Graph, operator: Operator) -> Any:
    """What two calls have in common that make the same: the layers of a model are mostly alike."""
    named_arguments = tuple((name, _like(graph, argument)) for name, argument in operator.kwargs)
    used = tuple(output >= 0 for output in operator.outputs)
    return operator.target, tuple(_like(graph, argument) for argument in operator.args), named_arguments, used


def _like(graph: Graph, argument: Argument) -> Any:
    match argument:
        case Ref(value=value):
            return graph.values[value].spec
        case Scalar(value=scalar):
            return type(scalar), scalar  # True, 1 and 1.0 are equal, and make different tensors
        case Sequence(items=items):
            return tuple(_like(graph, item) for item in items)
        case _:
            return argument


def _inferred(graph: Graph, operator: Operator) -> list[torch.Tensor]:
    """What ``operator`` makes; raises TrainingError where it makes nothing, or other things than are used."""
    call = resolve(operator.target)
    what = described(operator)
    with failing(what):
        inputs = {value: _without_data(graph, value) for value in operator_inputs(operator)}
        args, kwargs = Template(operator, {}, _CPU).fill(inputs)
        try:
            made = infer(operator.target, call, args, kwargs)
        except NOT_KNOWN as error:
            raise ContractError("its outputs depend on the elements of tensors") from error
        check_count(what, made=len(made), expected=len(operator.outputs))
        kept = [tensor for output, tensor in zip(operator.outputs, made, strict=True) if output >= 0]
        dropped = sum(tensor.nbytes for tensor in made) - sum(tensor.nbytes for tensor in kept)
        check_hidden(_tensors_in(args, kwargs), kept, dropped)
    return made


def infer(
    target: str, call: Callable[..., Any], args: list[Any], kwargs: Mapping[str, Any]
) -> list[torch.Tensor]:
    """What ``call`` makes of tensors without data, within a FakeTensorMode.

    Raises ContractError for what must not be called, one of NOT_KNOWN where only elements can tell, and
    whatever torch raises.
    """
    given = named(call, args, kwargs)
    check_arguments(target, call, given)
    with _Watch() as watch:
        made = tensors_of(call(*args, **kwargs))
    hidden = max(watch.most, hidden_bytes(target, given, made))
    check_hidden(_tensors_in(args, kwargs), made, hidden)
    return made


class _Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sees the operators that an operator is made of, and the largest of what they make."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Called by torch for each of them."""
        result = func(*args, **(kwargs or {}))
        items = result if isinstance(result, list | tuple) else [result]
        made = sum(_memory(item) for item in items if isinstance(item, torch.Tensor))
        self.most = max(self.most, made)
        return result


def _memory(tensor: torch.Tensor) -> int:
    """Bytes of memory that the elements of ``tensor`` take, views and repeats counted once."""
    return (
        prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
        * tensor.element_size()
    )


def _tensors_in(args: list[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    given = [*args, *kwargs.values()]
    items = [item for value in given for item in (value if isinstance(value, list) else [value])]
    return [item for item in items if isinstance(item, torch.Tensor)]


def tensors_of(result: Any) -> list[torch.Tensor]:
    """The tensors among what an operator returned."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for tensor in result if isinstance(tensor, torch.Tensor)]


def check_count(what: str, *, made: int, expected: int) -> None:
    """Raise TrainingError unless an operator made as many tensors as the graph expects of it."""
    if made != expected:
        raise TrainingError(
            f"{what} returns {made} tensors with torch {torch.__version__}, and {expected} where the model "
            "was captured; use that version of torch"
        )


def _without_data(graph: Graph, value: ValueId) -> torch.Tensor:
    """A tensor as ``value`` is laid out by the executor, without memory."""
    spec = graph.values[value].spec
    strides = travelling_strides(spec)
    return torch.empty_strided(spec.shape, strides, dtype=DTYPES[spec.dtype], device=_CPU)
