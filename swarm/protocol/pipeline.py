"""The pipeline machine: one stage's decisions through all passes of a job (decisions D5, D9).

A *pass* is the micro-batches of one training step, or of an evaluation between two steps or after the last
one (``protocol/passes``). Within a pass::

    working      forwards and backwards in 1F1B order, each when its tensors have arrived
    measuring    owners gather shared gradients; sums of squares of all gradients
    reported     the report is with the recorder; waiting for its record
    updating     the optimizer steps; owners return the new values of shared parameters
    adopting     users of shared parameters wait for those values and put them in place
    finished     there is no further pass, or the step failed

An evaluation pass changes nothing: its record leads to the next pass at once.

Every edge carries one message each way for each micro-batch: where no gradient is due, an acknowledgement. So
a sender never has more in flight than its depth, and what arrives is bounded before memory is spent.
"""

from dataclasses import dataclass
from typing import Literal, assert_never

from swarm.errors import LocalError, RemoteProtocolError
from swarm.graph.stage import Edge, SharedParameter
from swarm.ids import OperatorIndex, StageIndex
from swarm.protocol.arrivals import Arrivals, Pass
from swarm.protocol.order import Work
from swarm.protocol.pipeline_events import (
    Action,
    AdoptShared,
    Backward,
    Computed,
    Event,
    Fail,
    Finish,
    Forward,
    Measure,
    Measured,
    RecordArrived,
    Refuse,
    ReportArrived,
    SendRecord,
    SendReport,
    SendShared,
    SendTensor,
    SharedAdopted,
    SharedArrived,
    StageRole,
    Start,
    TensorArrived,
    Update,
    Updated,
)
from swarm.protocol.settlement import settle
from swarm.wire.messages.pipeline import TunedRecord

State = Literal["idle", "working", "measuring", "reported", "updating", "adopting", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatistics:
    """Where a stage is."""

    state: State
    step: int
    phase: str
    forwards: int
    backwards: int
    waiting: str
    """What it waits for; empty while it computes or has nothing to do."""
    since: float
    """The ``now`` at which it entered the state."""
    duplicates: int


class PipelineMachine:
    """One stage of one job. ``handle`` is the only mutator; see the module for the states."""

    deadline: float | None = None
    """The machine waits on links, not on clocks: a link that dies says so."""

    def __init__(self, role: StageRole) -> None:
        self.role = role
        self.arrivals = Arrivals(role)
        self._state: State = "idle"
        self._busy = False
        self._forwards = 0
        self._since = 0.0

    def handle(self, event: Event, *, now: float) -> list[Action]:
        """Take one event; returns what to do, in order.

        Raises RemoteProtocolError for a message that no stage of this plan, and no coordinator, would send,
        LocalError for an answer to nothing.
        """
        before = self._state, self.arrivals.index
        actions = self._take(event) + self._advance()
        if (self._state, self.arrivals.index) != before:
            self._since = now
        return actions

    def _take(self, event: Event) -> list[Action]:
        match event:
            case Start():
                if self._state != "idle":
                    raise RemoteProtocolError("a stage was started twice")
                self._state = "working"
            case TensorArrived() | SharedArrived() | ReportArrived() | RecordArrived():
                if not self.arrivals.take(event):
                    return [Refuse(message=event.message)]
            case Computed():
                return self._computed(event)
            case Measured():
                return self._measured(event)
            case Updated():
                return self._updated()
            case SharedAdopted():
                self._answered("adopting")
                return self._next_pass()
            case _:
                assert_never(event)
        return []

    # What the device has done.

    def _computed(self, event: Computed) -> list[Action]:
        self._answered("working")
        current = self.arrivals.current
        work = current.work
        if work is None:
            raise LocalError("a stage computed something that nobody asked for")
        current.work = None
        current.note_fault(event.fault, forward=work.kind == "forward")
        if event.loss is not None:
            current.losses.append(event.loss)
        if event.metric is not None:
            current.metrics.append(event.metric)
        if work.kind == "forward":
            self._forwards += 1
            return _sends(current, work, current.route.outgoing)
        return self._retire(current, work)

    def _retire(self, current: Pass, work: Work) -> list[Action]:
        """The micro-batch is through this stage: gradients or acknowledgements go back."""
        current.backwards += 1
        return _sends(current, work, current.route.incoming)

    def _measured(self, event: Measured) -> list[Action]:
        self._answered("measuring")
        current = self.arrivals.current
        current.note_fault(event.fault, forward=False)
        self._state = "reported"
        return [
            SendReport(
                phase=current.phase,
                step=current.step,
                squares=event.squares,
                losses=tuple(current.losses),
                fault=current.fault,
                fault_forward=current.fault_forward,
            )
        ]

    def _updated(self) -> list[Action]:
        self._answered("updating")
        self._state = "adopting"
        return [
            SendShared(
                step=self.arrivals.current.step,
                parameter=shared.parameter,
                operator=OperatorIndex(0),
                direction="value",
                target=target,
            )
            for shared in self._shared(owned=True)
            for target in users_of(shared)
        ]

    # What to do next.

    def _advance(self) -> list[Action]:
        """Go on as far as what is known allows."""
        actions: list[Action] = []
        while not self._busy:
            more = self._next()
            if more is None:
                break
            actions += more
        return actions

    def _next(self) -> list[Action] | None:
        """The next actions, or None where the stage has to wait."""
        match self._state:
            case "working":
                return self._next_work()
            case "measuring":
                return self._next_measure()
            case "reported":
                return self._next_record()
            case "adopting":
                return self._next_adoption()
            case "idle" | "updating" | "finished":
                return None

    def _next_work(self) -> list[Action] | None:
        current = self.arrivals.current
        current.work = current.work or next(current.order, None)
        work = current.work
        if work is None:
            self._state = "measuring"
            return self._send_shared_gradients(current)
        if current.missing(work):
            return None
        payloads = current.claim(work)
        if work.kind == "forward":
            self._busy = True
            return [
                Forward(
                    phase=current.phase, step=current.step, micro_batch=work.micro_batch, received=payloads
                )
            ]
        if current.phase == "evaluate":
            current.work = None
            return self._retire(current, work)
        self._busy = True
        return [Backward(step=current.step, micro_batch=work.micro_batch, gradients=payloads)]

    def _send_shared_gradients(self, current: Pass) -> list[Action]:
        if current.phase == "evaluate":
            return []
        return [
            SendShared(
                step=current.step,
                parameter=shared.parameter,
                operator=use.operator,
                direction="gradient",
                target=shared.owner,
            )
            for shared in self._shared(owned=False)
            for use in shared.uses
            if use.stage == self.role.stage
        ]

    def _next_measure(self) -> list[Action] | None:
        current = self.arrivals.current
        if self._missing_gradients(current):
            return None
        self._busy = True
        return [Measure(phase=current.phase, shared=dict(current.gradients))]

    def _missing_gradients(self, current: Pass) -> list[SharedParameter]:
        if current.phase == "evaluate":
            return []
        return [
            shared
            for shared in self._shared(owned=True)
            for use in shared.uses
            if use.stage != self.role.stage and (shared.parameter, use.operator) not in current.gradients
        ]

    def _next_record(self) -> list[Action] | None:
        """The recorder settles the pass once all reports are in; every stage acts on the record."""
        current = self.arrivals.current
        if current.record is None:
            if len(current.reports) < len(self.role.incarnations):
                return None
            clip_norm, metrics = self.role.clip_norm, current.metrics
            reports, current.reports = current.reports, {}
            checks = self.role.spot_checks and current.phase == "evaluate"
            settlement = settle(reports, clip_norm=clip_norm, metrics=metrics, spot_check=checks)
            return [
                SendRecord(phase=current.phase, step=current.step, settlement=settlement, reports=reports)
            ]
        match current.record.outcome:
            case "failed":
                self._state = "finished"
                return [Fail(step=current.step, cause=current.record.cause)]
            case "evaluated":
                return self._next_pass(held_out=current.record.loss)
            case "applied":
                self._state = "updating"
                self._busy = True
                later = current.record.later if isinstance(current.record, TunedRecord) else ()
                return [Update(step=current.step, clip=current.record.clip, later=later)]

    def _next_adoption(self) -> list[Action] | None:
        current = self.arrivals.current
        due = {shared.parameter for shared in self._shared(owned=False)}
        if not due:
            return self._next_pass()
        if due - set(current.values):
            return None
        self._busy = True
        return [AdoptShared(values=dict(current.values))]

    def _next_pass(self, held_out: float | None = None) -> list[Action]:
        self._forwards = 0
        if self.arrivals.next_pass():
            self._state = "working"
            return []
        self._state = "finished"
        return [Finish(held_out=held_out)]

    # Small answers.

    def _shared(self, *, owned: bool) -> list[SharedParameter]:
        mine = self.role.stage
        return [shared for shared in self.role.shared if (shared.owner == mine) == owned]

    def _answered(self, state: State) -> None:
        self._expect(self._busy and self._state == state, f"an answer for {state} in {self._state}")
        self._busy = False

    def _expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise LocalError(f"stage {self.role.stage}: {otherwise}")

    # What it says of itself.

    def waiting(self) -> str:
        """What the stage waits for, in words; empty while it computes or has nothing to do."""
        if self._busy or self._state in {"idle", "finished"}:
            return ""
        current = self.arrivals.current
        match self._state:
            case "working" if current.work is not None:
                direction, batch, value = current.missing(current.work)[0]
                edges = current.route.incoming if direction == "forward" else current.route.outgoing
                source = next(edge.stage for edge in edges if edge.value == value)
                what = "activation" if direction == "forward" else "gradient"
                return f"the {what} of micro-batch {batch} from stage {source + 1}"
            case "measuring":
                return "gradients of shared parameters"
            case "reported":
                return f"the record of step {current.step} from stage {self.role.recorder + 1}"
            case _:
                return "new values of shared parameters"

    def statistics(self) -> PipelineStatistics:
        """Where the stage is."""
        finished = self._state == "finished"
        current = None if finished else self.arrivals.current
        return PipelineStatistics(
            state=self._state,
            step=self.role.passes.steps if current is None else current.step,
            phase="" if current is None else current.phase,
            forwards=self._forwards,
            backwards=0 if current is None else current.backwards,
            waiting=self.waiting(),
            since=self._since,
            duplicates=self.arrivals.duplicates,
        )

    def check(self) -> None:
        """Raise LocalError unless the stage's invariants hold."""
        if self._state == "finished":
            return
        current = self.arrivals.current
        flying = self._forwards - current.backwards
        self._expect(0 <= flying <= self.role.depths[self.role.stage], f"{flying} micro-batches in flight")
        self._expect(self._forwards <= current.micro_batches, "more forwards than micro-batches")
        self._expect(set(current.tensors) <= current.seen, "a tensor kept that never came")
        if not self._busy and self._state == "working" and current.work is not None:
            self._expect(bool(current.missing(current.work)), "work is due and nobody does it")

    def __str__(self) -> str:
        found = self.statistics()
        return f"stage {self.role.stage}: {found.state} at {found.phase} step {found.step}"


def users_of(shared: SharedParameter) -> tuple[StageIndex, ...]:
    """The stages beside the owner that need a shared parameter's value, in order."""
    return tuple(sorted({use.stage for use in shared.uses} - {shared.owner}))


def _sends(current: Pass, work: Work, edges: tuple[Edge, ...]) -> list[Action]:
    return [
        SendTensor(
            phase=current.phase,
            step=current.step,
            micro_batch=work.micro_batch,
            value=edge.value,
            direction=work.kind,
            target=edge.stage,
        )
        for edge in edges
    ]
