"""What has arrived for one stage: the fence of decision D9, and what is kept of each pass until it is used.

Tensors of the next pass may arrive before this one is over, never of the one after: a step's record needs
this stage's own report. Only who catches up with a stage that others go on with (decision 0028) may be sent
more at once, all of a step, since nobody waits for its answers. Nothing is kept that no stage of the plan
would send, so memory is bounded; and what is kept fits its phase and its edge, so that what is made of it
later cannot fail.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from swarm.errors import RemoteProtocolError
from swarm.graph.stage import Edge, SharedParameter
from swarm.ids import OperatorIndex, Step, ValueId
from swarm.protocol.order import Work, one_forward_one_backward
from swarm.protocol.passes import PassName
from swarm.protocol.pipeline_events import (
    RecordArrived,
    ReportArrived,
    Route,
    SharedArrived,
    StageRole,
    TensorArrived,
)
from swarm.protocol.succession import Succession
from swarm.wire.codecs import may_choose
from swarm.wire.messages.pipeline import (
    BoundaryTensor,
    Fence,
    Phase,
    SharedTensor,
    StageReport,
    StepRecord,
    SwitchRecord,
    TunedRecord,
)

Arrival = TensorArrived | SharedArrived | ReportArrived | RecordArrived
Direction = Literal["forward", "backward"]

MOST_PASSES: Final = 4
"""Passes of whoever catches up: the one it makes, the next, and the first two that it is in charge of."""


@dataclass(slots=True)
class Pass:
    """One pass of a stage: its work, and what has arrived for it."""

    phase: Phase
    step: Step
    micro_batches: int
    route: Route
    order: Iterator[Work]
    work: Work | None = None
    """What is being done, or waits for tensors."""
    backwards: int = 0
    losses: list[float] = field(default_factory=list)
    metrics: list[float] = field(default_factory=list)
    fault: str = ""
    fault_forward: bool = False
    tensors: dict[tuple[Direction, int, ValueId], object] = field(default_factory=dict)
    """Payloads not yet used; None for an acknowledgement."""
    seen: set[tuple[Direction, int, ValueId]] = field(default_factory=set)
    gradients: dict[tuple[ValueId, OperatorIndex], object] = field(default_factory=dict)
    values: dict[ValueId, object] = field(default_factory=dict)
    reports: dict[int, StageReport] = field(default_factory=dict)
    record: StepRecord | None = None

    def note_fault(self, fault: str, *, forward: bool) -> None:
        """Remember the first fault of the pass."""
        if fault and not self.fault:
            self.fault, self.fault_forward = fault, forward

    def missing(self, work: Work) -> list[tuple[Direction, int, ValueId]]:
        """The tensors that ``work`` still waits for."""
        return [key for key in self._keys(work) if key not in self.tensors]

    def claim(self, work: Work) -> dict[ValueId, object]:
        """Take the payloads that ``work`` uses; acknowledgements have none."""
        taken = {key[2]: self.tensors.pop(key) for key in self._keys(work)}
        return {value: payload for value, payload in taken.items() if payload is not None}

    def _keys(self, work: Work) -> list[tuple[Direction, int, ValueId]]:
        edges = self.route.incoming if work.kind == "forward" else self.route.outgoing
        return [(work.kind, work.micro_batch, edge.value) for edge in edges]


class Arrivals:
    """The passes of one stage and the messages that have come for them."""

    def __init__(self, role: StageRole, succession: Succession) -> None:
        self.role = role
        self.succession = succession
        self.index = 0
        """The position of the current pass among those of the plan."""
        self.duplicates = 0
        self._passes: dict[int, Pass] = {}

    @property
    def current(self) -> Pass:
        """The pass being worked on."""
        return self._pass(self.index)

    def next_pass(self) -> bool:
        """Leave the current pass; False where it was the last. Who catches up evaluates nothing."""
        passes = self.role.passes
        self.index += 1
        while self.index < passes.count and not self._is_due(passes.at(self.index)):
            self.index += 1
        self._passes = {position: kept for position, kept in self._passes.items() if position >= self.index}
        return self.index < passes.count

    def _is_due(self, name: PassName) -> bool:
        return name.phase == "train" or self.succession.is_live(name.step)

    def _may_keep(self, position: int) -> bool:
        """Whether messages of the pass at ``position`` are kept, which is not over.

        Whoever catches up may be far behind the step from which on it is in charge, and is sent that one's
        while it makes what it has asked for.
        """
        if self.succession.is_live(self.current.step):
            return position <= self.index + 1
        return position in self._passes or len(self._passes) < MOST_PASSES

    def check(self, message: BoundaryTensor | SharedTensor) -> None:
        """Raise RemoteProtocolError where ``message`` would not be kept; asked before its payload comes."""
        _demand(self._is_current(message.fence), "it belongs to another plan")
        position = self._position(message.fence)
        due = self.index <= position and self._may_keep(position)
        _demand(due, f"step {message.fence.step} is not due")
        if isinstance(message, BoundaryTensor):
            kept = self._pass(position)
            self._edge(message, kept)
            _demand(_key(message) not in kept.seen, "it came already")
        else:
            self._shared(message)

    def take(self, event: Arrival) -> bool:
        """Keep what arrived; False where its incarnations are not those of the plan, or of the one to come.

        Nobody starts on a plan before all its holders know it, so who has other incarnations has an old
        plan. Raises RemoteProtocolError for a message that no stage of this plan would send.
        """
        fence = event.message.fence
        if not self._is_current(fence):
            return False
        position = self._position(fence)
        _demand(position < self.index or self._may_keep(position), f"step {fence.step} is too far ahead")
        if position < self.index or position >= self.role.passes.count:
            self.duplicates += 1
            return True
        self._keep(event, self._pass(position))
        return True

    def _keep(self, event: Arrival, kept: Pass) -> None:
        match event:
            case TensorArrived(message=tensor, payload=payload):
                self._keep_tensor(tensor, payload, kept)
            case SharedArrived(message=shared, payload=payload):
                self._keep_shared(shared, payload, kept)
            case ReportArrived(message=report):
                self._check_report(report, kept)
                kept.reports.setdefault(report.fence.source, report)
            case RecordArrived(message=record):
                self._check_record(record, kept)
                kept.record = kept.record or record

    def _keep_tensor(self, message: BoundaryTensor, payload: object, kept: Pass) -> None:
        self._edge(message, kept)
        key = _key(message)
        if key in kept.seen:
            self.duplicates += 1
            return
        kept.seen.add(key)
        kept.tensors[key] = payload if message.header is not None else None

    def _edge(self, message: BoundaryTensor, kept: Pass) -> Edge:
        """The edge that ``message`` came over; raises where it fits none, or its pass, or comes too soon."""
        forward, source = message.direction == "forward", message.fence.source
        edges = kept.route.incoming if forward else kept.route.outgoing
        edge = next((e for e in edges if e.value == message.tensor and e.stage == source), None)
        if edge is None:
            raise RemoteProtocolError(
                f"a training message was refused: no tensor {message.tensor} travels {message.direction} "
                f"from stage {source + 1}"
            )
        narrow = forward and self.succession.is_live(kept.step)
        window = self.role.depths[source] if narrow else kept.micro_batches
        within = message.micro_batch - kept.backwards < window and message.micro_batch < kept.micro_batches
        _demand(within, f"micro-batch {message.micro_batch} is too far ahead")
        if forward:
            _demand(message.header is not None, "only what travels backward may be an acknowledgement")
        else:
            due = edge.gradient and kept.phase == "train"
            _demand(message.header is None or due, f"tensor {message.tensor} has no gradient here")
        return edge

    def _keep_shared(self, message: SharedTensor, payload: object, kept: Pass) -> None:
        shared = self._shared(message)
        if message.direction == "value":
            kept.values.setdefault(shared.parameter, payload)
        else:
            kept.gradients.setdefault((shared.parameter, OperatorIndex(message.operator)), payload)

    def _shared(self, message: SharedTensor) -> SharedParameter:
        """The shared parameter that ``message`` is about; raises where it is not due here."""
        shared = next((s for s in self.role.shared if s.parameter == message.parameter), None)
        if shared is None:
            raise RemoteProtocolError(f"parameter {message.parameter} is not shared with this stage")
        source = message.fence.source
        _demand(message.fence.phase == "train", "evaluation changes no parameter")
        if message.direction == "value":
            owner = source == shared.owner != self.role.stage
            _demand(owner, "only its owner sends a shared parameter's value")
            return shared
        user = any(use.operator == message.operator and use.stage == source for use in shared.uses)
        here = shared.owner == self.role.stage != source
        _demand(user and here, "that operator's gradient is not due here")
        return shared

    def _check_report(self, report: StageReport, kept: Pass) -> None:
        role = self.role
        _demand(role.stage == role.recorder, "this stage does not settle steps")
        losses = kept.micro_batches if report.fence.source == role.recorder else 0
        _demand(len(report.losses) == losses, f"a report has {len(report.losses)} losses, not {losses}")
        _demand(kept.phase == "train" or not report.squares, "evaluation has no gradients")

    def _check_record(self, record: StepRecord, kept: Pass) -> None:
        _demand(record.fence.source == self.role.recorder, "only the last stage settles steps")
        good = "applied" if kept.phase == "train" else "evaluated"
        _demand(record.outcome in {good, "failed"}, f"no {kept.phase} pass is {record.outcome}")
        sound = record.outcome == "failed" or math.isfinite(record.loss + record.norm)
        _demand(sound, "a step that went well has a loss and a norm")
        if isinstance(record, SwitchRecord):
            proposed = record.generation == self.succession.proposed
            _demand(proposed and record.outcome == "applied", f"plan {record.generation} is not due")
        if isinstance(record, TunedRecord):
            self._check_codecs(record, kept)

    def _check_codecs(self, record: TunedRecord, kept: Pass) -> None:
        quality, count = self.role.quality, len(self.role.incarnations)
        if quality is None:
            _demand(isinstance(record, SwitchRecord), "the codecs of this job are those of its plan")
            return
        _demand(kept.phase == "train", "an evaluation changes no codec")
        _demand(len(record.codecs) == len(record.later) == count, f"not one codec for each of {count} stages")
        good = all(may_choose(quality, codec) for codec in record.later)
        _demand(good, f"a codec is none of quality {quality}")

    def _is_current(self, fence: Fence) -> bool:
        role = self.role
        known = fence.job == role.job and fence.target == role.stage and fence.source < len(role.incarnations)
        _demand(known, "it is for another job or stage")
        return self.succession.takes(fence)

    def _position(self, fence: Fence) -> int:
        position = self.role.passes.position(PassName(phase=fence.phase, step=Step(fence.step)))
        if position is None:
            evaluating = fence.phase == "evaluate"
            what = "no evaluation pass of this job" if evaluating else "not of this plan"
            raise RemoteProtocolError(f"a training message was refused: step {fence.step} is {what}")
        return position

    def _pass(self, position: int) -> Pass:
        found = self._passes.get(position)
        if found is None:
            role, name = self.role, self.role.passes.at(position)
            count = role.batches(name)
            found = self._passes[position] = Pass(
                phase=name.phase,
                step=name.step,
                micro_batches=count,
                route=role.train if name.phase == "train" else role.evaluate,
                order=one_forward_one_backward(count, role.depths[role.stage]),
            )
        return found


def _key(message: BoundaryTensor) -> tuple[Direction, int, ValueId]:
    return (message.direction, message.micro_batch, ValueId(message.tensor))


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RemoteProtocolError(f"a training message was refused: {otherwise}")
