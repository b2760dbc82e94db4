"""The pipeline machine: one stage's decisions through all passes of a job (decisions D5, D9).

A *pass* is the micro-batches of one training step, or of an evaluation between two steps or after the last
one (``protocol/passes``). Within a pass::

    working      forwards and backwards in 1F1B order, each when its tensors have arrived
    measuring    owners gather shared gradients; sums of squares of all gradients
    reported     the report is with the recorder; waiting for its record
    updating     the optimizer steps; owners return the new values of shared parameters
    adopting     users of shared parameters wait for those values and put them in place
    finished     there is no further pass, the step failed, or the stage is somebody else's now

An evaluation pass changes nothing: its record leads to the next pass at once.

Every edge carries one message each way for each micro-batch: where no gradient is due, an acknowledgement. So
a sender never has more in flight than its depth, and what arrives is bounded before memory is spent.

A stage changes hands between two steps (decision 0028). Whoever is to have it makes the steps since its copy
once more from what the others sent, asked for one step ahead; its own messages are made and not sent. The
record of a step says when the new plan holds (``protocol/succession``).
"""

from typing import assert_never

from swarm.errors import LocalError, RemoteProtocolError
from swarm.graph.stage import Edge, SharedParameter
from swarm.ids import Generation, OperatorIndex, Step
from swarm.protocol import pipeline_events as say
from swarm.protocol.arrivals import Arrivals, Pass
from swarm.protocol.order import Work
from swarm.protocol.pipeline_statistics import PipelineStatistics, State, waits_for
from swarm.protocol.settlement import settle
from swarm.protocol.succession import Succession
from swarm.wire.messages.pipeline import SwitchRecord, TunedRecord


class PipelineMachine:
    """One stage of one job. ``handle`` is the only mutator; see the module for the states."""

    deadline: float | None = None
    """The machine waits on links, not on clocks: a link that dies says so."""

    def __init__(self, role: say.StageRole) -> None:
        self.role = role
        self.succession = Succession(role.incarnations, catches_up=role.catches_up)
        self.arrivals = Arrivals(role, self.succession)
        self._switch: Generation | None = None
        """The plan that the next record is to begin."""
        self._state: State = "idle"
        self._busy = False
        self._forwards = 0
        self._since = 0.0

    def handle(self, event: say.Event, *, now: float) -> list[say.Action]:
        """Take one event; returns what to do, in order.

        Raises RemoteProtocolError for a message that no stage of this plan, and no coordinator, would send,
        LocalError for an answer to nothing.
        """
        before = self._state, self.arrivals.index
        actions = self._take(event) + self._advance()
        if (self._state, self.arrivals.index) != before:
            self._since = now
        return actions

    def _take(self, event: say.Event) -> list[say.Action]:
        match event:
            case say.Start():
                return self._start()
            case say.TensorArrived() | say.SharedArrived() | say.ReportArrived() | say.RecordArrived():
                if not self.arrivals.take(event):
                    return [say.Refuse(message=event.message)]
            case say.Computed():
                return self._computed(event)
            case say.Measured():
                return self._measured(event)
            case say.Updated():
                return self._updated()
            case say.SharedAdopted():
                self._answered("adopting")
                return self._next_pass()
            case say.Proposed() | say.SwitchOrdered():
                self._change_hands(event)
            case _:
                assert_never(event)
        return []

    def _start(self) -> list[say.Action]:
        if self._state != "idle":
            raise RemoteProtocolError("a stage was started twice")
        self._state = "working"
        return self._wants(self.arrivals.current.step)

    # What the device has done.

    def _computed(self, event: say.Computed) -> list[say.Action]:
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

    def _retire(self, current: Pass, work: Work) -> list[say.Action]:
        """The micro-batch is through this stage: gradients or acknowledgements go back."""
        current.backwards += 1
        return _sends(current, work, current.route.incoming)

    def _measured(self, event: say.Measured) -> list[say.Action]:
        self._answered("measuring")
        current = self.arrivals.current
        current.note_fault(event.fault, forward=False)
        self._state = "reported"
        return [
            say.SendReport(
                phase=current.phase,
                step=current.step,
                squares=event.squares,
                losses=tuple(current.losses),
                fault=current.fault,
                fault_forward=current.fault_forward,
            )
        ]

    def _updated(self) -> list[say.Action]:
        self._answered("updating")
        self._state = "adopting"
        return [
            say.SendShared(
                step=self.arrivals.current.step,
                parameter=shared.parameter,
                operator=OperatorIndex(0),
                direction="value",
                target=target,
            )
            for shared in self._shared(owned=True)
            for target in shared.users
        ]

    # What to do next.

    def _advance(self) -> list[say.Action]:
        """Go on as far as what is known allows."""
        actions: list[say.Action] = []
        while not self._busy:
            more = self._next()
            if more is None:
                break
            actions += more
        return actions

    def _next(self) -> list[say.Action] | None:
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

    def _next_work(self) -> list[say.Action] | None:
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
                say.Forward(
                    phase=current.phase, step=current.step, micro_batch=work.micro_batch, received=payloads
                )
            ]
        if current.phase == "evaluate":
            current.work = None
            return self._retire(current, work)
        self._busy = True
        return [say.Backward(step=current.step, micro_batch=work.micro_batch, gradients=payloads)]

    def _send_shared_gradients(self, current: Pass) -> list[say.Action]:
        if current.phase == "evaluate":
            return []
        return [
            say.SendShared(
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

    def _next_measure(self) -> list[say.Action] | None:
        current = self.arrivals.current
        if self._missing_gradients(current):
            return None
        self._busy = True
        return [say.Measure(phase=current.phase, shared=dict(current.gradients))]

    def _missing_gradients(self, current: Pass) -> list[SharedParameter]:
        if current.phase == "evaluate":
            return []
        return [
            shared
            for shared in self._shared(owned=True)
            for use in shared.uses
            if use.stage != self.role.stage and (shared.parameter, use.operator) not in current.gradients
        ]

    def _next_record(self) -> list[say.Action] | None:
        """The recorder settles the pass once all reports are in; every stage acts on the record."""
        current = self.arrivals.current
        if current.record is None:
            if len(current.reports) < len(self.role.incarnations):
                return None
            clip_norm, metrics = self.role.clip_norm, current.metrics
            reports, current.reports = current.reports, {}
            checks = self.role.spot_checks and current.phase == "evaluate"
            settlement = settle(reports, clip_norm=clip_norm, metrics=metrics, spot_check=checks)
            more = settlement.outcome == "applied" and current.step + 1 < self.role.passes.steps
            return [
                say.SendRecord(
                    phase=current.phase,
                    step=current.step,
                    settlement=settlement,
                    reports=reports,
                    switch=self._switch if more else None,
                )
            ]
        match current.record.outcome:
            case "failed":
                self._state = "finished"
                return [say.Fail(step=current.step, cause=current.record.cause)]
            case "evaluated":
                return self._next_pass(held_out=current.record.loss)
            case "applied":
                self._state = "updating"
                self._busy = True
                later = current.record.later if isinstance(current.record, TunedRecord) else ()
                later = later if self.role.quality is not None else ()
                return [say.Update(step=current.step, clip=current.record.clip, later=later)]

    def _next_adoption(self) -> list[say.Action] | None:
        current = self.arrivals.current
        due = {shared.parameter for shared in self._shared(owned=False)}
        if not due:
            return self._next_pass()
        if due - set(current.values):
            return None
        self._busy = True
        return [say.AdoptShared(values=dict(current.values))]

    def _next_pass(self, held_out: float | None = None) -> list[say.Action]:
        self._forwards = 0
        record, step = self.arrivals.current.record, self.arrivals.current.step
        switched: list[say.Action] = []
        if isinstance(record, SwitchRecord):
            after = Step(step + 1)
            self.succession.begin(after)
            self._switch = None
            if self.succession.leaves(self.role.stage):
                self._state = "finished"
                return [say.HandedOver(step=after)]
            switched = [say.Switched(step=after)]
        if self.arrivals.next_pass():
            self._state = "working"
            return [*switched, *self._wants(Step(step + 2))]
        self._state = "finished"
        return [*switched, say.Finish(held_out=held_out)] if self.succession.is_live(step + 1) else []

    # Changing hands.

    def _wants(self, step: Step) -> list[say.Action]:
        """What whoever catches up asks for: a step ahead of the one it makes."""
        current = self.arrivals.current
        if self.succession.is_live(current.step):
            return []
        steps = [step, Step(step + 1)] if self.arrivals.index == 0 else [step]
        return [say.WantReplay(step=one) for one in steps if one < self.role.passes.steps]

    def _change_hands(self, event: say.Proposed | say.SwitchOrdered) -> None:
        if isinstance(event, say.Proposed):
            self._switch = None
            self.succession.propose(event.generation, event.incarnations)
            return
        if self.role.stage != self.role.recorder or event.generation != self.succession.proposed:
            raise RemoteProtocolError(
                f"plan {event.generation} was not proposed to the stage that settles steps"
            )
        if self.succession.begins is None:
            self._switch = event.generation

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
        return waits_for(self.role, self._state, self.arrivals.current)

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
        self._expect(self._switch in {None, self.succession.proposed}, "a switch to a plan of the past")
        self._expect(self._forwards <= current.micro_batches, "more forwards than micro-batches")
        self._expect(set(current.tensors) <= current.seen, "a tensor kept that never came")
        if not self._busy and self._state == "working" and current.work is not None:
            self._expect(bool(current.missing(current.work)), "work is due and nobody does it")

    def __str__(self) -> str:
        found = self.statistics()
        return f"stage {self.role.stage}: {found.state} at {found.phase} step {found.step}"


def _sends(current: Pass, work: Work, edges: tuple[Edge, ...]) -> list[say.Action]:
    return [
        say.SendTensor(
            phase=current.phase,
            step=current.step,
            micro_batch=work.micro_batch,
            value=edge.value,
            direction=work.kind,
            target=edge.stage,
        )
        for edge in edges
    ]
