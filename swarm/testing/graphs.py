"""A graph executed by the book, operator by operator, with nothing of the stage executor in it."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from swarm.graph import dag
from swarm.train.capture import Captured


class GraphRun:
    """One micro-batch through a captured graph: the loss, gradients and new buffers by name, and outputs."""

    def __init__(self, captured: Captured, inputs: Sequence[torch.Tensor]) -> None:
        graph = captured.graph
        values: dict[int, torch.Tensor] = {}
        values |= zip(graph.inputs(), inputs, strict=True)
        for index, value in enumerate(graph.values):
            if value.kind not in {"input", "output"}:
                values[index] = captured.tensors[value.name].clone()
                values[index].requires_grad_(value.kind == "parameter" and value.differentiable)
        for operator in graph.operators:
            _execute(graph, operator, values)
        self.loss = values[graph.loss]
        self.outputs = [values[index].detach() for index in graph.outputs]
        self.updates = {graph.values[u.buffer].name: values[u.value].detach() for u in graph.updates}
        wanted = [index for index, value in enumerate(graph.values) if value.differentiable]
        found = torch.autograd.grad(self.loss, [values[i] for i in wanted]) if wanted else ()
        self.gradients = {graph.values[i].name: g for i, g in zip(wanted, found, strict=True)}


def _execute(graph: dag.Graph, operator: dag.Operator, values: dict[int, torch.Tensor]) -> None:
    _, packet, overload = operator.target.split(".")
    result = getattr(getattr(torch.ops.aten, packet), overload)(
        *(_evaluated(argument, values) for argument in operator.args),
        **{name: _evaluated(argument, values) for name, argument in operator.kwargs},
    )
    made = [result] if isinstance(result, torch.Tensor) else list(result)
    for index, tensor in zip(operator.outputs, made, strict=True):
        if index >= 0:
            values[index] = tensor
            spec = graph.values[index].spec
            if (str(tensor.dtype), tuple(tensor.shape)) != (f"torch.{spec.dtype}", spec.shape):
                raise AssertionError(f"{operator.target} made {tensor.dtype} {tuple(tensor.shape)}")


def _evaluated(argument: dag.Argument, values: Mapping[int, torch.Tensor]) -> Any:
    """What an argument of the graph is for torch."""
    match argument:
        case dag.Ref(value=value):
            return values[value]
        case dag.Scalar(value=scalar):
            return scalar
        case dag.TypeName(name=name) | dag.MemoryFormat(name=name):
            return getattr(torch, name)
        case dag.Device():
            return torch.device("cpu")
        case dag.Sequence(items=items):
            return [_evaluated(item, values) for item in items]
