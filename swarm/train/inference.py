"""What a stage will make, found without data: shapes and types of every operator's outputs, before it runs.

The specifications in a graph are claims: memory is planned by them, and links are judged by them. Here each
operator is called on tensors that have a shape and a type and no memory, and what it says is compared with
the claims. So a graph that lies, or asks an operator for what it cannot do, is refused when it is loaded.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, ShapeEnv

from swarm.compress.layout import DTYPES
from swarm.errors import TrainingError
from swarm.graph.dag import Graph, operator_inputs
from swarm.ids import OperatorIndex, ValueId
from swarm.train.failures import described, failing
from swarm.train.program_arguments import Template, resolve
from swarm.train.tensors import check_made, travelling_strides

_CPU = torch.device("cpu")

_NOT_KNOWN = (
    DataDependentOutputException,
    DynamicOutputShapeException,
    GuardOnDataDependentSymNode,
    NotImplementedError,
    UnsupportedOperatorException,
)
"""What torch raises where it cannot tell without data; the claim is then compared with what is made."""


def check_operators(graph: Graph, operators: Iterable[OperatorIndex]) -> None:
    """Raise TrainingError, naming the operator, unless each of ``operators`` makes what ``graph`` says.

    RemoteProtocolError for one that is not allowed, FailureError for one that this torch lacks. Costs about
    half a millisecond an operator, and no memory for tensors.
    """
    made: dict[ValueId, torch.Tensor] = {}
    with FakeTensorMode(shape_env=ShapeEnv(), allow_fallback_kernels=False), torch.no_grad():
        for index in operators:
            for value in operator_inputs(graph.operators[index]):
                if value not in made:
                    made[value] = _without_data(graph, value)
            _check_operator(graph, index, made)


def _check_operator(graph: Graph, index: OperatorIndex, values: Mapping[ValueId, torch.Tensor]) -> None:
    operator = graph.operators[index]
    call = resolve(operator.target)
    what = described(operator)
    with failing(what):
        args, kwargs = Template(operator, {}, _CPU).fill(values)
        try:
            made = tensors_of(call(*args, **kwargs))
        except _NOT_KNOWN:
            return
    check_count(what, made=len(made), expected=len(operator.outputs))
    for output, tensor in zip(operator.outputs, made, strict=True):
        if output >= 0:
            check_made(tensor, graph.values[output], what)


def tensors_of(result: Any) -> list[torch.Tensor]:
    """The tensors among what an operator returned."""
    results = [result] if isinstance(result, torch.Tensor) else result
    return [tensor for tensor in results if isinstance(tensor, torch.Tensor)]


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
