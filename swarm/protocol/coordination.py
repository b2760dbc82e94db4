"""The coordination machine: one job's life, as its coordinator decides it (decision D9).

::

    waiting     for peers that can hold the job; fails when the job's patience ends
    loading     a plan is out; its holders load their stages
    training    the pipeline runs by itself; records come in
    finishing   the last step is done; trained tensors are collected and copied here
    done | failed | cancelled

This is the one coordinator behind the interface that the council fills later: everything it decides is a plan
with a rising generation, incarnations that rise when a stage changes hands, and notices.
"""

from typing import Final, assert_never

import msgspec

from swarm.errors import LocalError, RemoteProtocolError
from swarm.ids import Generation, PeerId, short
from swarm.protocol.coordination_events import (
    Action,
    Begin,
    Cancelled,
    CoordinationStatistics,
    Event,
    Failed,
    IssuePlan,
    JobTerms,
    KeepLine,
    KeepWeights,
    LineKept,
    LineLost,
    LinksReported,
    MakePlan,
    OfferArrived,
    OrderSnapshot,
    PeerLeft,
    PlanImpossible,
    PlanMade,
    ProgressHeard,
    Record,
    ResultHeard,
    SnapshotHeard,
    StageLoaded,
    StageLost,
    StartPlan,
    Tell,
    Tick,
    WeightsKept,
)
from swarm.protocol.incarnations import Incarnations
from swarm.protocol.lines import Lines
from swarm.protocol.offers import Offers
from swarm.protocol.patience import Patience
from swarm.protocol.progress import MOST_DEPARTURES, MOST_FAULTS, Progress
from swarm.protocol.stalls import Stall
from swarm.wire.messages.jobs import JobProgress, JobState
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.plan import Plan

ENDED: Final[frozenset[JobState]] = frozenset({"done", "failed", "cancelled"})


class CoordinationMachine:
    """One job at its coordinator. ``handle`` is the only mutator; see the module for the states."""

    def __init__(self, terms: JobTerms) -> None:
        self.terms = terms
        self.deadline: float | None = None
        self.plan: Plan | None = None
        self.weights: tuple[TensorBlob, ...] = ()
        self._state: JobState = "waiting"
        self._sentence = ""
        self._since = 0.0
        self._patience = Patience(terms.patience)
        self._offers = Offers()
        self._planning = True
        """Also before the job begins here: nothing is planned then."""
        self._stall = Stall(terms.bytes)
        self._expected: tuple[tuple[TensorBlob, ...], ...] = ()
        self._generation = Generation(0)
        self._ready: set[int] = set()
        self._results: dict[int, tuple[TensorBlob, ...]] = {}
        self._progress = Progress(terms)
        self._incarnations = Incarnations()
        self._lines = Lines()

    def handle(self, event: Event, *, now: float) -> list[Action]:
        """Take one event; returns what to do, in order.

        Raises RemoteProtocolError for a message whose sender may not send it.
        """
        if self._state in ENDED:
            return []
        actions = self._take(event, now)
        self._arm()
        return actions

    def _take(self, event: Event, now: float) -> list[Action]:  # noqa: C901, PLR0911, PLR0912 - a table
        match event:
            case Begin():
                return self._begun(event, now)
            case OfferArrived():
                return self._offered(event, now)
            case LinksReported():
                return self._reported(event, now)
            case PeerLeft():
                return self._left(event, now)
            case PlanMade():
                return self._planned(event, now)
            case PlanImpossible():
                self._planning = False
                return self._enter("waiting", event.sentence, now)
            case StageLoaded():
                return self._loaded(event, now)
            case StageLost():
                return self._lost(event, now)
            case ProgressHeard():
                return self._recorded(event, now)
            case ResultHeard():
                return self._resulted(event, now)
            case SnapshotHeard():
                return self._copied(event)
            case LineKept():
                self._lines.kept(event.line, now)
                return []
            case LineLost():
                self._lines.lost(now)
                return []
            case WeightsKept():
                return self._enter("done", "the trained weights are in the swarm", now)
            case Cancelled():
                return self._enter("cancelled", event.sentence, now)
            case Failed():
                return self._enter("failed", event.sentence, now)
            case Tick():
                return self._tick(now)
            case _:
                assert_never(event)

    # Waiting and planning.

    def _begun(self, event: Begin, now: float) -> list[Action]:
        self._planning = False
        self._generation = event.generation
        self._lines.line = event.line
        self._progress.restore(event.records)
        self._begin(now)
        whom = "waiting for peers that offer memory"
        if event.generation == 0:
            return self._enter("waiting", whom, now)
        self._incarnations.renew()
        again = f"{whom}: its coordinator is back, and the job goes on from step {event.line.step}"
        return self._enter("waiting", again, now)

    def _offered(self, event: OfferArrived, now: float) -> list[Action]:
        if self._offers.take(event.resources) and self._state == "waiting":
            self._offers.settle(now)
        return []

    def _reported(self, event: LinksReported, now: float) -> list[Action]:
        changed = self._offers.report(event.peer, event.links)
        if changed and event.peer in self._offers and self._state == "waiting":
            self._offers.settle(now)
        return []

    def _tick(self, now: float) -> list[Action]:
        if self._stall.is_over(now):
            return self._late(now)
        if self._state != "waiting":
            return []
        if self._patience.is_over(now):
            return self._enter("failed", f"after {self._patience.seconds:.0f} s: {self._sentence}", now)
        if self._offers.due is None or now < self._offers.due or self._planning:
            return []
        offers, left_out = self._offers.begin_plan(now)
        if not offers:
            nobody = "waiting for peers that offer memory"
            return self._enter("waiting", self._sentence if left_out else nobody, now)
        self._planning = True
        offers, unlinked = self._offers.linked(offers)
        generation = Generation(self._generation + 1)
        return [MakePlan(offers=offers, left_out=unlinked, generation=generation, line=self._lines.line)]

    def _late(self, now: float) -> list[Action]:
        """Somebody has been waited for longer than any link of ours would need."""
        plan = self.plan
        if plan is None:
            return []
        if self._state == "training":
            stalled = f"step {self._progress.steps} was not settled within {self._stall.seconds(now):.0f} s"
            return self._enter("failed", f"{stalled}: a holder does not go on", now)
        done = self._ready if self._state == "loading" else self._results
        missing = [index for index in range(len(plan.stages)) if index not in done]
        first = missing[0] if missing else 0
        who = f"stage {first + 1} of {len(plan.stages)} on peer {short(PeerId(plan.stages[first].holder))}"
        seconds = f"{now - self._since:.0f} s"
        if self._state != "loading":
            return self._enter("failed", f"{who} did not return its trained weights within {seconds}", now)
        for index in missing:
            self._offers.bench(PeerId(plan.stages[index].holder), now)
        return self._replan(f"{who} was not loaded within {seconds}", now)

    def _planned(self, event: PlanMade, now: float) -> list[Action]:
        self._planning = False
        plan = event.plan
        self._expected = event.results
        if any(stage.holder not in self._offers for stage in plan.stages):
            self._offers.due = now
            return []
        self._generation = Generation(self._generation + 1)
        stages = self._incarnations.of(plan.stages, self._generation)
        self.plan = msgspec.structs.replace(plan, generation=self._generation, stages=stages)
        self._ready.clear()
        self._progress.begin(plan.step)
        noun = "stages" if len(stages) > 1 else "stage"
        told = self._enter("loading", f"{len(stages)} {noun} to be loaded", now)
        return [IssuePlan(plan=self.plan), *told]

    # Loading and training.

    def _loaded(self, event: StageLoaded, now: float) -> list[Action]:
        plan = self._plan_of(event.generation, event.stage, event.peer)
        if plan is None or self._state != "loading":
            return []
        self._ready.add(event.stage)
        missing = [index for index in range(len(plan.stages)) if index not in self._ready]
        if missing:
            names = ", ".join(str(index + 1) for index in missing)
            noun = "stages" if len(missing) > 1 else "stage"
            self._sentence = f"{noun} {names} to be loaded"
            return []
        self._lines.begin(self._expected, now)
        return [StartPlan(plan=plan), *self._enter("training", "", now)]

    def _lost(self, event: StageLost, now: float) -> list[Action]:
        plan = self._plan_of(event.generation, event.stage, event.peer)
        if plan is None:
            return []
        where = f"stage {event.stage + 1} of {len(plan.stages)} on peer {short(event.peer)}"
        if self._state == "loading":
            self._offers.bench(event.peer, now)
            return self._replan(f"{where} could not be loaded: {event.sentence}", now)
        ended = f"{where} ended at step {self._progress.steps}: {event.sentence}"
        return self._go_back(ended, now, most=MOST_FAULTS)

    def _left(self, event: PeerLeft, now: float) -> list[Action]:
        if self._offers.leave(event.peer) and self._state == "waiting":
            self._offers.due = now
        held = (
            [index for index, stage in enumerate(self.plan.stages) if stage.holder == event.peer]
            if self.plan
            else []
        )
        if not held or self._state == "waiting":
            return []
        names = ", ".join(str(index + 1) for index in held)
        who = f"peer {short(event.peer)} {event.reason}"
        if self._state == "loading":
            return self._replan(f"{who}, before stage {names} was loaded", now)
        if self._state == "finishing":
            return self._go_back(f"{who}, before its trained weights were copied", now)
        total = len(self.plan.stages) if self.plan else 0
        when = f"at step {self._progress.steps} of {self.terms.steps}"
        return self._go_back(f"{who}, {when}, and with it stage {names} of {total} is lost", now)

    def _go_back(self, sentence: str, now: float, *, most: int = MOST_DEPARTURES) -> list[Action]:
        """A stage is lost: plan again, from the last line on; unless that has brought nothing so far."""
        if not self._progress.set_back(most):
            return self._enter("failed", sentence, now)
        self._incarnations.renew()
        self._results.clear()
        return self._replan(f"{sentence}; it goes on from step {self._lines.line.step}", now)

    def _replan(self, sentence: str, now: float) -> list[Action]:
        self.plan = None
        self._ready.clear()
        self._offers.settle(now)
        return self._enter("waiting", f"another plan: {sentence}", now)

    def _recorded(self, event: ProgressHeard, now: float) -> list[Action]:
        plan, progress = self.plan, event.progress
        if plan is None or self._state != "training":
            return []
        recorder = plan.stages[-1]
        if recorder.holder != event.peer or progress.incarnation != recorder.incarnation:
            raise RemoteProtocolError("a step record did not come from the holder of the last stage")
        news: list[Action] = [Record(progress=progress)] if self._progress.take(progress) else []
        if progress.outcome == "failed":
            return [*news, *self._enter("failed", f"step {progress.step}: {progress.cause}", now)]
        news += self._order(progress, plan, now)
        if not self._progress.is_over:
            self._stall.step(now)
            return news
        finishing = self._enter("finishing", "trained weights to be copied", now)
        return [*news, *finishing, *self._collect()]

    # Lines.

    def _order(self, progress: JobProgress, plan: Plan, now: float) -> list[Action]:
        """Have the stages copied at a boundary that is soon to come, if it is time for that."""
        if progress.outcome != "applied" or not self.terms.keeps_lines:
            return []
        step = self._lines.applied(progress.step, self.terms.steps, now)
        return [] if step is None else [OrderSnapshot(plan=plan, step=step)]

    def _copied(self, event: SnapshotHeard) -> list[Action]:
        plan = self._plan_of(event.generation, event.stage, event.peer)
        if plan is None or self._state != "training":
            return []
        line = self._lines.take(event.stage, event.step, event.tensors)
        return [] if line is None else [KeepLine(line=line)]

    # The end.

    def _resulted(self, event: ResultHeard, now: float) -> list[Action]:
        plan = self._plan_of(event.generation, event.stage, event.peer)
        if plan is None or self._state not in {"training", "finishing"}:
            return []
        if event.stage in self._results:
            return []
        if sorted(map(_facts, event.tensors)) != sorted(map(_facts, self._expected[event.stage])):
            raise RemoteProtocolError(f"the result of stage {event.stage + 1} has not the stage's tensors")
        self._results[event.stage] = event.tensors
        return self._collect()

    def _collect(self) -> list[Action]:
        """Keep the results once the last step is done and all are there; a stage may be done sooner."""
        total = len(self.plan.stages) if self.plan is not None else 0
        if self._state != "finishing" or len(self._results) < total:
            return []
        self._stall.lift()
        self.weights = tuple(tensor for index in sorted(self._results) for tensor in self._results[index])
        return [KeepWeights(tensors=self.weights)]

    def _plan_of(self, generation: int, stage: int, peer: PeerId) -> Plan | None:
        """The plan, where the message is for it. Raises where its sender does not hold the stage."""
        plan = self.plan
        if plan is None or generation != plan.generation:
            return None
        if stage >= len(plan.stages) or plan.stages[stage].holder != peer:
            raise RemoteProtocolError(f"it does not hold stage {stage}")
        return plan

    def _enter(self, state: JobState, sentence: str, now: float) -> list[Action]:
        if state != self._state:
            if self._state == "waiting":
                self._patience.waited += now - self._since
            self._state = state
            self._begin(now)
        self._sentence = sentence
        return [Tell(state=state, sentence=sentence)]

    def _begin(self, now: float) -> None:
        self._since = now
        self._patience.begin(now, has_steps=self._progress.steps > 0)
        self._stall.enter(self._state, now)

    def _arm(self) -> None:
        plan_at = None if self._planning else self._offers.due
        waiting = (plan_at, self._patience.until) if self._state == "waiting" else ()
        due = [moment for moment in (*waiting, self._stall.deadline) if moment is not None]
        self.deadline = min(due, default=None)

    def statistics(self) -> CoordinationStatistics:
        """Where the job is."""
        return CoordinationStatistics(
            state=self._state,
            sentence=self._sentence,
            since=self._since,
            until=(self._patience.until or 0.0) if self._state == "waiting" else 0.0,
            step=self._progress.steps,
            loss=self._progress.loss,
            held_out=self._progress.held_out,
            generation=self._generation,
        )

    def check(self) -> None:
        """Raise LocalError unless the job's invariants hold."""
        broken = [
            self._state in {"loading", "training", "finishing", "done"} and self.plan is None,
            self._state == "waiting" and self.plan is not None,
            self._state in ENDED and self.deadline is not None,
            self.plan is not None and self.plan.generation != self._generation,
        ]
        if any(broken):
            raise LocalError(f"the coordination of a job is inconsistent: {self}")

    def __str__(self) -> str:
        return f"job {short(self.terms.job)}: {self._state} ({self._sentence}), generation {self._generation}"


def _facts(tensor: TensorBlob) -> tuple[str, str, tuple[int, ...], int, int]:
    """All of a tensor but its elements: what training does not change."""
    return tensor.name, tensor.dtype, tensor.shape, tensor.blob.size, len(tensor.blob.blocks)
