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

from typing import assert_never

from swarm.errors import LocalError, RemoteProtocolError
from swarm.ids import Generation, PeerId, short
from swarm.protocol import coordination_events as say
from swarm.protocol.handover import HandOver
from swarm.protocol.lines import Lines
from swarm.protocol.offers import Offers
from swarm.protocol.plans import Plans
from swarm.protocol.progress import MOST_DEPARTURES, MOST_FAULTS, Progress
from swarm.protocol.results import Results
from swarm.protocol.standing import ENDED, Standing
from swarm.protocol.terms import JobTerms
from swarm.wire.messages.jobs import JobProgress, JobState
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.plan import Plan


class CoordinationMachine:
    """One job at its coordinator. ``handle`` is the only mutator; see the module for the states."""

    def __init__(self, terms: JobTerms) -> None:
        self.terms = terms
        self.deadline: float | None = None
        self.weights: tuple[TensorBlob, ...] = ()
        self._at = Standing(terms)
        self._offers = Offers()
        self._planning = True
        """Also before the job begins here: nothing is planned then."""
        self._plans = Plans()
        self._ready: set[int] = set()
        self._results = Results()
        self._progress = Progress(terms)
        self._lines = Lines()
        self._hand_over = HandOver(self._offers, terms.bytes)

    @property
    def plan(self) -> Plan | None:
        """The plan in force."""
        return self._plans.plan

    def handle(self, event: say.Event, *, now: float) -> list[say.Action]:
        """Take one event; returns what to do, in order.

        Raises RemoteProtocolError for a message whose sender may not send it.
        """
        if self._at.state in ENDED:
            return []
        actions = self._take(event, now)
        self._arm()
        return actions

    def _take(self, event: say.Event, now: float) -> list[say.Action]:  # noqa: C901, PLR0911, PLR0912 - a table
        match event:
            case say.Begin():
                return self._begun(event, now)
            case say.OfferArrived():
                return self._offered(event, now)
            case say.LinksReported():
                return self._reported(event, now)
            case say.PeerLeft():
                return self._left(event, now)
            case say.PlanMade():
                return self._planned(event, now)
            case say.PlanImpossible():
                self._planning = False
                return self._enter("waiting", event.sentence, now)
            case say.StageLoaded():
                return self._loaded(event, now)
            case say.StageLost():
                return self._lost(event, now)
            case say.ProgressHeard():
                return self._recorded(event, now)
            case say.ResultHeard():
                return self._resulted(event, now)
            case say.CopyHeard() | say.SuccessorMade() | say.SuccessorImpossible() | say.TakenHeard():
                return self._handed(event, now)
            case say.SnapshotHeard():
                return self._copied(event)
            case say.LineKept():
                self._lines.kept(event.line, now)
                return self._commit()
            case say.LineLost():
                self._lines.lost(now)
                return []
            case say.WeightsKept():
                return self._enter("done", "the trained weights are in the swarm", now)
            case say.Cancelled() | say.Failed():
                state: JobState = "failed" if isinstance(event, say.Failed) else "cancelled"
                return self._enter(state, event.sentence, now)
            case say.Tick():
                return self._tick(now)
            case _:
                assert_never(event)

    # Waiting and planning.

    def _begun(self, event: say.Begin, now: float) -> list[say.Action]:
        self._planning = False
        self._plans.restore(event.generation)
        self._lines.line = event.line
        self._progress.restore(event.records)
        self._at.begin(now, has_steps=self._progress.steps > 0)
        whom = "waiting for peers that offer memory"
        if event.generation == 0:
            return self._enter("waiting", whom, now)
        again = f"{whom}: its coordinator is back, and the job goes on from step {event.line.step}"
        return self._enter("waiting", again, now)

    def _offered(self, event: say.OfferArrived, now: float) -> list[say.Action]:
        changed = self._offers.take(event.resources)
        self._hand_over.wish(event.resources.peer, leaves=event.resources.memory <= 0)
        return self._heard_of_offers(now, changed=changed)

    def _reported(self, event: say.LinksReported, now: float) -> list[say.Action]:
        changed = self._offers.report(event.peer, event.links)
        return self._heard_of_offers(now, changed=changed and event.peer in self._offers)

    def _heard_of_offers(self, now: float, *, changed: bool) -> list[say.Action]:
        if changed and self._at.state == "waiting":
            self._offers.settle(now)
        return self._move(now)

    def _tick(self, now: float) -> list[say.Action]:
        if self._at.stall.is_over(now):
            return self._late(now)
        if self._hand_over.deadline is not None and now >= self._hand_over.deadline:
            return [*self._hand_over.late(now), *self._move(now)]
        if self._at.state != "waiting":
            return []
        if self._at.patience.is_over(now):
            return self._enter("failed", f"after {self._at.patience.seconds:.0f} s: {self._at.sentence}", now)
        if self._offers.due is None or now < self._offers.due or self._planning:
            return []
        offers, left_out = self._offers.begin_plan(now)
        if not offers:
            nobody = "waiting for peers that offer memory"
            return self._enter("waiting", self._at.sentence if left_out else nobody, now)
        self._planning = True
        offers, unlinked = self._offers.linked(offers)
        generation = Generation(self._plans.generation + 1)
        return [say.MakePlan(offers=offers, left_out=unlinked, generation=generation, line=self._lines.line)]

    def _late(self, now: float) -> list[say.Action]:
        """Somebody has been waited for longer than any link of ours would need."""
        plan = self.plan
        if plan is None:
            return []
        if self._at.state == "training":
            stalled = (
                f"step {self._progress.steps} was not settled within {self._at.stall.seconds(now):.0f} s"
            )
            return self._enter("failed", f"{stalled}: a holder does not go on", now)
        done = self._ready if self._at.state == "loading" else self._results
        missing = [index for index in range(len(plan.stages)) if index not in done]
        first = missing[0] if missing else 0
        who = f"stage {first + 1} of {len(plan.stages)} on peer {short(PeerId(plan.stages[first].holder))}"
        seconds = f"{now - self._at.since:.0f} s"
        if self._at.state != "loading":
            return self._enter("failed", f"{who} did not return its trained weights within {seconds}", now)
        for index in missing:
            self._offers.bench(PeerId(plan.stages[index].holder), now)
        return self._replan(f"{who} was not loaded within {seconds}", now)

    def _planned(self, event: say.PlanMade, now: float) -> list[say.Action]:
        self._planning = False
        plan = event.plan
        self._results.expected = event.results
        if any(stage.holder not in self._offers for stage in plan.stages):
            self._offers.due = now
            return []
        issued = self._plans.issue(plan)
        self._ready.clear()
        self._progress.begin(plan.step)
        noun = "stages" if len(plan.stages) > 1 else "stage"
        told = self._enter("loading", f"{len(plan.stages)} {noun} to be loaded", now)
        return [say.IssuePlan(plan=issued), *told]

    # Loading and training.

    def _loaded(self, event: say.StageLoaded, now: float) -> list[say.Action]:
        if self.plan is not None and self._hand_over.awaits_holders(event.generation):
            return self._hand_over.loaded(event, self.plan)
        plan = self._plans.of(event.generation, event.stage, event.peer)
        if plan is None or self._at.state != "loading":
            return []
        self._ready.add(event.stage)
        missing = [index for index in range(len(plan.stages)) if index not in self._ready]
        if missing:
            names = ", ".join(str(index + 1) for index in missing)
            noun = "stages" if len(missing) > 1 else "stage"
            self._at.sentence = f"{noun} {names} to be loaded"
            return []
        self._lines.begin(self._results.expected, now)
        return [say.StartPlan(plan=plan), *self._enter("training", "", now), *self._move(now)]

    def _lost(self, event: say.StageLost, now: float) -> list[say.Action]:
        if self._hand_over.is_lost(event.generation, event.peer):
            return self._stay(event.peer, now)
        plan = self._plans.of(event.generation, event.stage, event.peer)
        if plan is None:
            return []
        where = f"stage {event.stage + 1} of {len(plan.stages)} on peer {short(event.peer)}"
        if self._at.state == "loading":
            self._offers.bench(event.peer, now)
            return self._replan(f"{where} could not be loaded: {event.sentence}", now)
        ended = f"{where} ended at step {self._progress.steps}: {event.sentence}"
        return self._go_back(ended, now, most=MOST_FAULTS)

    def _left(self, event: say.PeerLeft, now: float) -> list[say.Action]:
        if self._offers.leave(event.peer) and self._at.state == "waiting":
            self._offers.due = now
        self._hand_over.wish(event.peer, leaves=False)
        held = self._plans.stages_of(event.peer)
        if not held:
            return self._stay(event.peer, now) if self._hand_over.newcomer == event.peer else []
        if self._at.state == "waiting":
            return []
        names = ", ".join(str(index + 1) for index in held)
        who = f"peer {short(event.peer)} {event.reason}"
        if self._at.state == "loading":
            return self._replan(f"{who}, before stage {names} was loaded", now)
        if self._at.state == "finishing":
            return self._go_back(f"{who}, before its trained weights were copied", now)
        total = len(self.plan.stages) if self.plan else 0
        when = f"at step {self._progress.steps} of {self.terms.steps}"
        return self._go_back(f"{who}, {when}, and with it stage {names} of {total} is lost", now)

    def _go_back(self, sentence: str, now: float, *, most: int = MOST_DEPARTURES) -> list[say.Action]:
        """A stage is lost: plan again, from the last line on; unless that has brought nothing so far."""
        if not self._progress.set_back(most):
            return self._enter("failed", sentence, now)
        self._results.clear()
        return self._replan(f"{sentence}; it goes on from step {self._lines.line.step}", now, anew=True)

    def _replan(self, sentence: str, now: float, *, anew: bool = False) -> list[say.Action]:
        self._plans.drop(anew=anew)
        self._ready.clear()
        self._offers.settle(now)
        return self._enter("waiting", f"another plan: {sentence}", now)

    def _recorded(self, event: say.ProgressHeard, now: float) -> list[say.Action]:
        plan, progress = self.plan, event.progress
        if plan is None or self._at.state != "training" or self._hand_over.is_early(event):
            return []
        recorder = plan.stages[-1]
        if recorder.holder != event.peer or progress.incarnation != recorder.incarnation:
            raise RemoteProtocolError("a step record did not come from the holder of the last stage")
        news: list[say.Action] = [say.Record(progress=progress)] if self._progress.take(progress) else []
        if progress.outcome == "failed":
            return [*news, *self._enter("failed", f"step {progress.step}: {progress.cause}", now)]
        news += self._order(progress, plan, now)
        if not self._progress.is_over:
            self._at.stall.step(now)
            if self._hand_over.is_over(self._progress.steps):
                news += [*self._hand_over.drop(), *self._move(now)]
            return news
        finishing = self._enter("finishing", "trained weights to be copied", now)
        return [*news, *finishing, *self._collect()]

    # Stages that change hands.

    def _move(self, now: float) -> list[say.Action]:
        """Begin a hand-over, where somebody wants to leave; what is told of it changes."""
        if self._at.state != "training" or self.plan is None or not self.terms.keeps_lines:
            return []
        actions = self._hand_over.begin(self.plan, self._results.expected, now)
        return [*actions, *self._tell_of_it(now)]

    def _tell_of_it(self, now: float) -> list[say.Action]:
        changed = self._at.state == "training" and self._hand_over.sentence != self._at.sentence
        return self._enter("training", self._hand_over.sentence, now) if changed else []

    def _handed(
        self, event: say.CopyHeard | say.SuccessorMade | say.SuccessorImpossible | say.TakenHeard, now: float
    ) -> list[say.Action]:
        plan, hand_over = self.plan, self._hand_over
        if plan is None or self._at.state != "training":
            return []
        actions: list[say.Action] = []
        match event:
            case say.CopyHeard() if self._plans.of(event.generation, event.stage, event.peer) is plan:
                actions = hand_over.copied(event, plan, now)
            case say.SuccessorMade() if hand_over.awaits(event):
                actions = hand_over.made(self._plans.numbered(event.plan), now)
            case say.SuccessorImpossible() if hand_over.awaits(event):
                hand_over.impossible(event.sentence)
            case say.TakenHeard() if hand_over.may_begin(event, plan):
                actions = self._taken(event, now)
        return [*actions, *self._tell_of_it(now)]

    def _taken(self, event: say.TakenHeard, now: float) -> list[say.Action]:
        """The proposed plan is in force: no word of its recorder is too early any more."""
        proposed, early = self._hand_over.taken(event.step)
        self._plans.succeed(proposed, self._hand_over.stage)
        self._lines.begin(self._results.expected, now)
        records = [action for one in early for action in self._recorded(one, now)]
        return [say.TellPlan(plan=proposed), *records]

    def _stay(self, newcomer: PeerId, now: float) -> list[say.Action]:
        """Whoever was to have a stage cannot: its holder goes on, if the record has not been made yet."""
        if self._hand_over.state == "switching":
            lost = f"peer {short(newcomer)} was lost while stage {self._hand_over.stage + 1} moved to it"
            return self._go_back(lost, now)
        self._offers.bench(newcomer, now)
        return [*self._hand_over.drop(), *self._move(now), *self._tell_of_it(now)]

    # Lines, and the end.

    def _commit(self) -> list[say.Action]:
        """What was sent before the line may go, unless somebody catches up from an older copy."""
        if self.plan is None or self._hand_over.state != "idle":
            return []
        return [say.CommitLine(plan=self.plan, step=self._lines.line.step)]

    def _order(self, progress: JobProgress, plan: Plan, now: float) -> list[say.Action]:
        """Have the stages copied at a boundary that is soon to come, if it is time for that."""
        if progress.outcome != "applied" or not self.terms.keeps_lines:
            return []
        step = self._lines.applied(progress.step, self.terms.steps, now)
        return [] if step is None else [say.OrderSnapshot(plan=plan, step=step)]

    def _copied(self, event: say.SnapshotHeard) -> list[say.Action]:
        plan = self._plans.of(event.generation, event.stage, event.peer)
        if plan is None or self._at.state != "training":
            return []
        line = self._lines.take(event.stage, event.step, event.tensors)
        return [] if line is None else [say.KeepLine(line=line)]

    def _resulted(self, event: say.ResultHeard, now: float) -> list[say.Action]:
        plan = self._plans.of(event.generation, event.stage, event.peer)
        if plan is None or self._at.state not in {"training", "finishing"}:
            return []
        return self._collect() if self._results.take(event.stage, event.tensors) else []

    def _collect(self) -> list[say.Action]:
        """Keep the results once the last step is done and all are there; a stage may be done sooner."""
        found = self._results.all()
        if self._at.state != "finishing" or found is None:
            return []
        self._at.stall.lift()
        self.weights = found
        return [say.KeepWeights(tensors=found)]

    def _enter(self, state: JobState, sentence: str, now: float) -> list[say.Action]:
        dropped = self._hand_over.drop() if state != "training" else []
        self._at.enter(state, sentence, now, has_steps=self._progress.steps > 0)
        return [*dropped, say.Tell(state=state, sentence=sentence)]

    def _arm(self) -> None:
        plan_at = None if self._planning else self._offers.due
        waiting = (plan_at, self._at.until) if self._at.state == "waiting" else ()
        others = (self._at.stall.deadline, self._hand_over.deadline)
        due = [moment for moment in (*waiting, *others) if moment is not None]
        self.deadline = min(due, default=None)

    def statistics(self) -> say.CoordinationStatistics:
        """Where the job is."""
        return say.CoordinationStatistics(
            state=self._at.state,
            sentence=self._at.sentence,
            since=self._at.since,
            until=self._at.until or 0.0,
            step=self._progress.steps,
            loss=self._progress.loss,
            held_out=self._progress.held_out,
            generation=self._plans.generation,
        )

    def check(self) -> None:
        """Raise LocalError unless the job's invariants hold."""
        broken = [
            self._at.state in {"loading", "training", "finishing", "done"} and self.plan is None,
            self._at.state == "waiting" and self.plan is not None,
            self._at.state in ENDED and self.deadline is not None,
            self.plan is not None and self.plan.generation > self._plans.generation,
            self._hand_over.state != "idle" and self._at.state != "training",
        ]
        if any(broken):
            raise LocalError(f"the coordination of a job is inconsistent: {self}")

    def __str__(self) -> str:
        number = self._plans.generation
        return f"job {short(self.terms.job)}: {self._at.state} ({self._at.sentence}), generation {number}"
