"""The forward pass of one stage over one micro-batch, in training and in evaluation alike."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from swarm.compress.layout import own
from swarm.errors import LocalError
from swarm.graph.dag import Graph, operator_inputs
from swarm.graph.stage import Stage
from swarm.ids import OperatorIndex, ValueId
from swarm.train.program import Program
from swarm.train.program_compiled import CompiledProgram
from swarm.train.program_seeds import Seeds
from swarm.train.stage_faults import FaultSearch, has_nan, is_finite
from swarm.train.tensors import laid_out

Tensors = Mapping[ValueId, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardResult:
    """What a forward pass of one micro-batch gave.

    ``outgoing`` has every outgoing boundary tensor, ``loss`` this micro-batch's loss in the stage that makes
    it, ``metric`` likewise. ``fault`` names the operator where a number stopped being finite in this stage;
    it is empty where all are, and says something only of a step whose loss or gradient norm is not finite
    (see ``stage_faults``).
    """

    outgoing: dict[ValueId, torch.Tensor]
    loss: float | None
    fault: str
    metric: float | None = None


class StagePass:
    """One graph's part in a stage: its program, and what goes in and comes out.

    ``bound`` has the parameters that each operator reads, ``tensors`` the constants by name; ``compiled`` is
    whether what is recorded runs compiled.
    """

    def __init__(
        self,
        graph: Graph,
        stage: Stage,
        bound: Mapping[OperatorIndex, Tensors],
        tensors: Mapping[str, torch.Tensor],
        device: torch.device,
        *,
        compiled: bool = False,
    ) -> None:
        self.graph = graph
        self.stage = stage
        self.device = device
        values = {v: graph.values[v] for v in stage.constants}
        constants = {v: laid_out(tensors[value.name], value, device) for v, value in values.items()}
        self._kept_constants = {
            ValueId(update.value): constants[ValueId(update.value)]
            for update in stage.updates
            if update.value in constants
        }
        plain = Program(graph, stage, _bind(graph, stage, bound, constants), device)
        self._program = CompiledProgram(plain, graph, stage, device) if compiled else plain
        self._held = {_memory(tensor) for read in bound.values() for tensor in read.values()}
        self._infinite: set[ValueId] = set()

    def begin(self, inputs: Tensors, received: Tensors) -> dict[ValueId, torch.Tensor]:
        """The values that a pass starts from, buffers apart; inputs are copied to the layout of capture.

        Raises LocalError where one is missing or unexpected.
        """
        expected = {edge.value for edge in self.stage.incoming}
        if set(inputs) != set(self.stage.inputs) or set(received) != expected:
            raise LocalError(
                f"stage {self.stage.index} needs inputs {sorted(self.stage.inputs)} and boundary tensors "
                f"{sorted(expected)}, and was given {sorted(inputs)} and {sorted(received)}"
            )
        laid = {v: laid_out(tensor, self.graph.values[v], self.device) for v, tensor in inputs.items()}
        return laid | self._kept_constants | dict(received)

    def forward(self, values: dict[ValueId, torch.Tensor], seeds: Seeds, *, record: bool) -> ForwardResult:
        """Run the stage on ``values``, and leave there what it keeps, with its autograd graph if recorded."""
        before = dict(values)
        self._program.run(values, seeds=seeds, record=record)
        changing = self._held | {_memory(before[use.value]) for use in self.stage.buffers}
        outgoing = {edge.value: _apart(values[edge.value], changing) for edge in self.stage.outgoing}
        loss = values[ValueId(self.graph.loss)].detach() if self.stage.loss else None
        metric = self.graph.metric
        watched = {edge.value: outgoing[edge.value] for edge in self.stage.outgoing if edge.gradient}
        if loss is not None:
            watched[ValueId(self.graph.loss)] = loss
        return ForwardResult(
            outgoing=outgoing,
            loss=None if loss is None else float(loss.item()),
            fault=self._fault(watched, before, seeds),
            metric=float(values[ValueId(metric)].item())
            if self.stage.metric and metric is not None
            else None,
        )

    def _fault(self, watched: Tensors, before: dict[ValueId, torch.Tensor], seeds: Seeds) -> str:
        """Where the first number stopped being finite; a value that is infinite on purpose is noted."""
        broken = [v for v, tensor in watched.items() if not is_finite(tensor)]
        if all(v in self._infinite and not has_nan(watched[v]) for v in broken):
            return ""
        search = FaultSearch()
        self._program.run(before, seeds=seeds, record=False, inspect=search)
        if not search.found:
            self._infinite.update(v for v in broken if not has_nan(watched[v]))
        return search.found

    def reader_of(self, value: ValueId) -> str:
        """The place of the first operator here that reads ``value``, for people."""
        return next((str(i) for i in self._program.instructions if value in i.reads), "")


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _apart(tensor: torch.Tensor, changing: Collection[int]) -> torch.Tensor:
    """``tensor`` for a link, which may hold on to it: a copy where it aliases what steps write to."""
    detached = tensor.detach()
    return own(detached) if _memory(detached) in changing else detached


def _bind(
    graph: Graph, stage: Stage, parameters: Mapping[OperatorIndex, Tensors], constants: Tensors
) -> dict[OperatorIndex, dict[ValueId, torch.Tensor]]:
    return {
        index: {
            **parameters.get(index, {}),
            **{v: constants[v] for v in operator_inputs(graph.operators[index]) if v in constants},
        }
        for index in stage.operators
    }
