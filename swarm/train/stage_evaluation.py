"""A stage's part of the evaluation graph, over the tensors that training holds."""

from collections.abc import Mapping

import torch

from swarm.graph.dag import Graph
from swarm.graph.stage import Stage
from swarm.ids import OperatorIndex, ValueId
from swarm.train.program_seeds import Seeds
from swarm.train.stage_pass import ForwardResult, StagePass, Tensors
from swarm.train.tensors import laid_out


class EvaluationPass:
    """Runs the evaluation graph's operators of one stage.

    ``held`` are the tensors that training keeps up to date, by name; what it does not hold comes from
    ``tensors``, the initial ones, and never changes.
    """

    def __init__(
        self,
        graph: Graph,
        stage: Stage,
        *,
        held: Mapping[str, torch.Tensor],
        tensors: Mapping[str, torch.Tensor],
        device: torch.device,
    ) -> None:
        read: dict[ValueId, torch.Tensor] = {}
        for use in (*stage.parameters, *stage.buffers):
            value = graph.values[use.value]
            current = held.get(value.name)
            read[use.value] = laid_out(tensors[value.name], value, device) if current is None else current
        bound: dict[OperatorIndex, dict[ValueId, torch.Tensor]] = {}
        for use in stage.parameters:
            for operator in use.operators:
                bound.setdefault(operator, {})[use.value] = read[use.value]
        sent = {edge.value for edge in stage.outgoing}
        self._read = {use.value: read[use.value] for use in stage.buffers}
        self._read |= {use.value: read[use.value] for use in stage.parameters if use.value in sent}
        self._pass = StagePass(graph, stage, bound, tensors, device)

    def run(self, inputs: Tensors, received: Tensors, seeds: Seeds) -> ForwardResult:
        """One micro-batch; nothing of it stays."""
        return self._pass.forward(self._pass.begin(inputs, received) | self._read, seeds, record=False)
