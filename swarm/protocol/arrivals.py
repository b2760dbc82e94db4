"""What has arrived for one stage: the fence of decision D9, and what is kept of each pass until it is used.

Tensors of the next pass may arrive before this one is over, never of the one after: a step's record needs
this stage's own report. Nothing is kept that no stage of the plan would send, so memory is bounded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from swarm.errors import RemoteProtocolError
from swarm.ids import OperatorIndex, Step, ValueId
from swarm.protocol.order import Work, one_forward_one_backward
from swarm.protocol.pipeline_events import (
    RecordArrived,
    ReportArrived,
    Route,
    SharedArrived,
    StageRole,
    TensorArrived,
)
from swarm.wire.messages.pipeline import BoundaryTensor, Fence, Phase, SharedTensor, StageReport, StepRecord

MAX_EARLY: Final = 1024
"""Messages of a later incarnation that are kept until the plan that explains them comes."""

Arrival = TensorArrived | SharedArrived | ReportArrived | RecordArrived
Direction = Literal["forward", "backward"]


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

    def __init__(self, role: StageRole) -> None:
        self.role = role
        self.index = 0
        """The current pass, counted from the plan's first step."""
        self.early: list[Arrival] = []
        """Messages of a later plan; for whoever carries that plan out."""
        self.duplicates = 0
        self._passes: dict[int, Pass] = {}

    @property
    def count(self) -> int:
        """Passes of the plan."""
        return self.role.steps - self.role.first_step + (1 if self.role.evaluation_batches else 0)

    @property
    def current(self) -> Pass:
        """The pass being worked on."""
        return self._pass(self.index)

    def next_pass(self) -> bool:
        """Leave the current pass; False where it was the last."""
        self._passes.pop(self.index, None)
        self.index += 1
        return self.index < self.count

    def take(self, event: Arrival) -> bool:
        """Keep what arrived; False where its incarnations are older than the plan's.

        Raises RemoteProtocolError for a message that no stage of this plan would send.
        """
        fence, role = event.message.fence, self.role
        known = fence.job == role.job and fence.target == role.stage and fence.source < len(role.incarnations)
        _demand(known, "it is for another job or stage")
        sender, receiver = role.incarnations[fence.source], role.incarnations[role.stage]
        if fence.sender < sender or fence.receiver < receiver:
            return False
        if fence.sender > sender or fence.receiver > receiver:
            _demand(len(self.early) < MAX_EARLY, "too many messages of a later plan")
            self.early.append(event)
            return True
        position = self._position(fence)
        _demand(position <= self.index + 1, f"step {fence.step} is too far ahead")
        if position < self.index or position >= self.count:
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
                _demand(self.role.stage == self.role.recorder, "this stage does not settle steps")
                kept.reports.setdefault(report.fence.source, report)
            case RecordArrived(message=record):
                _demand(record.fence.source == self.role.recorder, "only the last stage settles steps")
                kept.record = kept.record or record

    def _keep_tensor(self, message: BoundaryTensor, payload: object, kept: Pass) -> None:
        forward, source = message.direction == "forward", message.fence.source
        edges = kept.route.incoming if forward else kept.route.outgoing
        known = any(edge.value == message.tensor and edge.stage == source for edge in edges)
        _demand(known, f"no tensor {message.tensor} travels {message.direction} from stage {source}")
        window = self.role.depths[source] if forward else kept.micro_batches
        within = message.micro_batch - kept.backwards < window and message.micro_batch < kept.micro_batches
        _demand(within, f"micro-batch {message.micro_batch} is too far ahead")
        key = (message.direction, message.micro_batch, ValueId(message.tensor))
        if key in kept.seen:
            self.duplicates += 1
            return
        kept.seen.add(key)
        kept.tensors[key] = payload if message.header is not None else None

    def _keep_shared(self, message: SharedTensor, payload: object, kept: Pass) -> None:
        shared = next((s for s in self.role.shared if s.parameter == message.parameter), None)
        if shared is None:
            raise RemoteProtocolError(f"parameter {message.parameter} is not shared with this stage")
        source = message.fence.source
        if message.direction == "value":
            _demand(source == shared.owner, "only its owner sends a shared parameter's value")
            kept.values.setdefault(shared.parameter, payload)
            return
        user = any(use.operator == message.operator and use.stage == source for use in shared.uses)
        _demand(user and shared.owner == self.role.stage, "that operator's gradient is not due here")
        kept.gradients.setdefault((shared.parameter, OperatorIndex(message.operator)), payload)

    def _position(self, fence: Fence) -> int:
        role = self.role
        if fence.phase == "evaluate":
            due = fence.step == role.steps and role.evaluation_batches > 0
            _demand(due, "this job has no such evaluation pass")
        else:
            _demand(role.first_step <= fence.step < role.steps, f"step {fence.step} is not of this plan")
        return fence.step - role.first_step

    def _pass(self, position: int) -> Pass:
        found = self._passes.get(position)
        if found is None:
            role, step = self.role, Step(self.role.first_step + position)
            training = step < role.steps
            count = role.micro_batches if training else role.evaluation_batches
            found = self._passes[position] = Pass(
                phase="train" if training else "evaluate",
                step=step,
                micro_batches=count,
                route=role.train if training else role.evaluate,
                order=one_forward_one_backward(count, role.depths[role.stage]),
            )
        return found


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RemoteProtocolError(f"a training message was refused: {otherwise}")
