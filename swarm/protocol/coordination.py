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

from dataclasses import dataclass
from typing import Final, assert_never

import msgspec

from swarm.errors import LocalError, RemoteProtocolError
from swarm.ids import Generation, PeerId, Step, short
from swarm.protocol.coordination_events import (
    Action,
    Begin,
    Cancelled,
    Event,
    Failed,
    IssuePlan,
    JobTerms,
    KeepWeights,
    MakePlan,
    OfferArrived,
    PeerLeft,
    PlanImpossible,
    PlanMade,
    ProgressHeard,
    Resources,
    ResultHeard,
    StageLoaded,
    StageLost,
    StartPlan,
    Tell,
    Tick,
    WeightsKept,
)
from swarm.wire.messages.jobs import JobProgress, JobState
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.plan import Plan, StagePlan

SETTLE_SECONDS: Final = 2.0
"""Seconds from the last change of offers to a plan, so that peers that start together share the job."""

ENDED: Final[frozenset[JobState]] = frozenset({"done", "failed", "cancelled"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationStatistics:
    """Where a job is."""

    state: JobState
    sentence: str
    since: float
    until: float
    """The ``now`` at which waiting ends in failure; 0 where it does not."""
    step: int
    loss: float
    held_out: float
    generation: int


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
        self._gives_up: float | None = None
        self._offers: dict[PeerId, Resources] = {}
        self._planning = False
        self._plan_at: float | None = None
        self._generation = Generation(0)
        self._ready: set[int] = set()
        self._results: dict[int, tuple[TensorBlob, ...]] = {}
        self._last: JobProgress | None = None
        self._held_out = float("nan")
        self._history: dict[int, tuple[StagePlan, int]] = {}

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
                self._wait(now)
                return self._enter("waiting", "waiting for peers that offer memory", now)
            case OfferArrived():
                return self._offered(event, now)
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

    def _offered(self, event: OfferArrived, now: float) -> list[Action]:
        found = event.resources
        if found.memory > 0:
            if self._offers.get(found.peer) == found:
                return []
            self._offers[found.peer] = found
        elif self._offers.pop(found.peer, None) is None:
            return []
        if self._state == "waiting":
            self._plan_at = now + SETTLE_SECONDS
        return []

    def _tick(self, now: float) -> list[Action]:
        if self._state != "waiting":
            return []
        if self._gives_up is not None and now >= self._gives_up:
            return self._enter("failed", f"after {self.terms.patience:.0f} s: {self._sentence}", now)
        if self._plan_at is None or now < self._plan_at or self._planning:
            return []
        self._plan_at = None
        if not self._offers:
            return self._enter("waiting", "waiting for peers that offer memory", now)
        self._planning = True
        offers = tuple(self._offers[peer] for peer in sorted(self._offers))
        return [MakePlan(offers=offers, generation=Generation(self._generation + 1), step=Step(0))]

    def _planned(self, event: PlanMade, now: float) -> list[Action]:
        self._planning = False
        plan = event.plan
        if any(stage.holder not in self._offers for stage in plan.stages):
            self._plan_at = now
            return []
        self._generation = Generation(self._generation + 1)
        stages = tuple(self._incarnate(index, stage) for index, stage in enumerate(plan.stages))
        self.plan = msgspec.structs.replace(plan, generation=self._generation, stages=stages)
        self._ready.clear()
        told = self._enter("loading", f"{len(stages)} stages to be loaded", now)
        return [IssuePlan(plan=self.plan), *told]

    def _incarnate(self, index: int, stage: StagePlan) -> StagePlan:
        """The stage with its incarnation: one more than before where it changed hands or shape."""
        known, incarnation = self._history.get(index, (None, 0))
        if known is None or (known.holder, known.first, known.last) != (
            stage.holder,
            stage.first,
            stage.last,
        ):
            incarnation += 1
        self._history[index] = (stage, incarnation)
        return msgspec.structs.replace(stage, incarnation=incarnation)

    # Loading and training.

    def _loaded(self, event: StageLoaded, now: float) -> list[Action]:
        plan = self._plan_of(event.generation, event.stage, event.peer)
        if plan is None or self._state != "loading":
            return []
        self._ready.add(event.stage)
        missing = [index for index in range(len(plan.stages)) if index not in self._ready]
        if missing:
            self._sentence = f"stages {', '.join(str(index + 1) for index in missing)} to be loaded"
            return []
        return [StartPlan(plan=plan), *self._enter("training", "", now)]

    def _lost(self, event: StageLost, now: float) -> list[Action]:
        plan = self._plan_of(event.generation, event.stage, event.peer)
        if plan is None:
            return []
        where = f"stage {event.stage + 1} of {len(plan.stages)} on peer {short(event.peer)}"
        if self._state == "loading":
            self._offers.pop(event.peer, None)
            return self._replan(f"{where} could not be loaded: {event.sentence}", now)
        return self._enter("failed", f"{where} ended at step {self._steps_done}: {event.sentence}", now)

    def _left(self, event: PeerLeft, now: float) -> list[Action]:
        offered = self._offers.pop(event.peer, None)
        if self._state == "waiting" and offered is not None:
            self._plan_at = now
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
            return self._enter("failed", f"{who}, before its trained weights were copied", now)
        total = len(self.plan.stages) if self.plan else 0
        when = f"at step {self._steps_done} of {self.terms.steps}"
        return self._enter("failed", f"{who}, {when}, and with it stage {names} of {total} is lost", now)

    def _replan(self, sentence: str, now: float) -> list[Action]:
        self.plan = None
        self._ready.clear()
        self._plan_at = now + SETTLE_SECONDS
        return self._enter("waiting", f"another plan: {sentence}", now)

    def _recorded(self, event: ProgressHeard, now: float) -> list[Action]:
        plan, progress = self.plan, event.progress
        if plan is None or self._state not in {"training", "finishing"}:
            return []
        recorder = plan.stages[-1]
        if recorder.holder != event.peer or progress.incarnation != recorder.incarnation:
            raise RemoteProtocolError("a step record did not come from the holder of the last stage")
        if progress.outcome == "failed":
            return self._enter("failed", f"step {progress.step}: {progress.cause}", now)
        if progress.outcome == "evaluated":
            self._held_out = progress.loss
        else:
            self._last = progress
        if progress.outcome == "evaluated" or (
            not self.terms.evaluates and self._steps_done >= self.terms.steps
        ):
            return self._enter("finishing", "trained weights to be copied", now)
        return []

    # The end.

    def _resulted(self, event: ResultHeard, now: float) -> list[Action]:
        plan = self._plan_of(event.generation, event.stage, event.peer)
        if plan is None or self._state not in {"training", "finishing"}:
            return []
        self._results[event.stage] = event.tensors
        if len(self._results) < len(plan.stages):
            return []
        self.weights = tuple(tensor for index in sorted(self._results) for tensor in self._results[index])
        names = [tensor.name for tensor in self.weights]
        if len(set(names)) != len(names):
            return self._enter("failed", "two stages returned the same tensor", now)
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
            self._wait(now)
        self._state, self._sentence = state, sentence
        return [Tell(state=state, sentence=sentence)]

    def _wait(self, now: float) -> None:
        """A state begins; its patience counts where it is one of waiting."""
        self._since = now
        self._gives_up = now + self.terms.patience if self.terms.patience > 0 else None

    def _arm(self) -> None:
        due = [moment for moment in (self._plan_at, self._gives_up) if moment is not None]
        self.deadline = min(due) if due and self._state == "waiting" else None

    @property
    def _steps_done(self) -> int:
        return self._last.step + 1 if self._last is not None else 0

    def statistics(self) -> CoordinationStatistics:
        """Where the job is."""
        return CoordinationStatistics(
            state=self._state,
            sentence=self._sentence,
            since=self._since,
            until=(self._gives_up or 0.0) if self._state == "waiting" else 0.0,
            step=self._steps_done,
            loss=self._last.loss if self._last is not None else float("nan"),
            held_out=self._held_out,
            generation=self._generation,
        )

    def check(self) -> None:
        """Raise LocalError unless the job's invariants hold."""
        broken = [
            self._state in {"loading", "training", "finishing", "done"} and self.plan is None,
            self._state == "waiting" and self.plan is not None,
            self._state != "waiting" and self.deadline is not None,
            self.plan is not None and self.plan.generation != self._generation,
        ]
        if any(broken):
            raise LocalError(f"the coordination of a job is inconsistent: {self}")

    def __str__(self) -> str:
        return f"job {short(self.terms.job)}: {self._state} ({self._sentence}), generation {self._generation}"
