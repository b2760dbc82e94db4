"""One stage's way to another holder while its job trains: part of the coordination machine (decision 0028).

::

    idle           nobody wants to leave, or nobody else can take the stage
    copying        its holder copies it at its next step boundary
    proposing      a plan that gives it to somebody else is being made
    catching up    that plan is proposed; the newcomer loads the copy and makes the steps since then once more
    switching      the recorder is to say from which step on the plan holds
    taking over    it has; the newcomer makes that step

Until the recorder has said so, everything can be dropped: the holder goes on.
"""

from collections.abc import Sequence
from typing import Final, Literal

from swarm.errors import LocalError, RemoteProtocolError
from swarm.ids import PeerId, Step, short
from swarm.protocol.coordination_events import (
    Action,
    CopyHeard,
    MakeSuccessor,
    OrderCopy,
    ProgressHeard,
    Propose,
    StageLoaded,
    SuccessorImpossible,
    SuccessorMade,
    SwitchPlan,
    TakenHeard,
    Withdraw,
)
from swarm.protocol.lines import check_copy
from swarm.protocol.offers import Offers
from swarm.protocol.stalls import LOADING_SECONDS, SLOWEST_RATE
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.plan import Plan

State = Literal["idle", "copying", "proposing", "catching up", "switching", "taking over"]

CATCHING_UP: Final = 4.0
"""Times as long as loading may take that a newcomer has until it is near the others."""


class HandOver:
    """The hand-over that goes on, if one does. ``sentence`` says of it what a status shows."""

    def __init__(self, offers: Offers, job_bytes: int) -> None:
        self.state: State = "idle"
        self.sentence = ""
        self.deadline: float | None = None
        self.stage = 0
        self.plan: Plan | None = None
        """The proposed one."""
        self._offers = offers
        self._loading = LOADING_SECONDS + job_bytes / SLOWEST_RATE
        self._leaving: set[PeerId] = set()
        self._expected: Sequence[Sequence[TensorBlob]] = ()
        self._copy: CopyHeard | None = None
        self._ready: set[int] = set()
        self._early: list[ProgressHeard] = []
        self._from: Step | None = None

    @property
    def newcomer(self) -> PeerId | None:
        """Who is to have the stage."""
        return None if self.plan is None else PeerId(self.plan.stages[self.stage].holder)

    def wish(self, peer: PeerId, *, leaves: bool) -> None:
        """A peer wants to hold no stage any more, or holds them again."""
        if leaves:
            self._leaving.add(peer)
        else:
            self._leaving.discard(peer)

    def begin(self, plan: Plan, expected: Sequence[Sequence[TensorBlob]], now: float) -> list[Action]:
        """Move a stage of ``plan`` whose holder wants to leave, if there is one and somebody can take it.

        ``expected`` are the tensors that each stage owns, as they were at first.
        """
        if self.state != "idle":
            return []
        self._expected, self.sentence = expected, ""
        for index, stage in enumerate(plan.stages):
            if stage.holder not in self._leaving:
                continue
            who = f"peer {short(PeerId(stage.holder))} wants to leave, with stage {index + 1}"
            if self._offers.takers(plan, index, self._leaving, now):
                self._enter("copying", f"{who}: it is copied for another peer", now + self._loading)
                self.stage = index
                return [OrderCopy(plan=plan, stage=index)]
            self.sentence = f"{who}, and no other peer offers the memory for it and has links to all"
        return []

    def drop(self) -> list[Action]:
        """Leave the stage where it is."""
        plan, proposed = self.plan, self.state in {"catching up", "switching"}
        self._enter("idle", "", None)
        self.plan = self._copy = self._from = None
        self._ready.clear()
        self._early.clear()
        return [Withdraw(plan=plan)] if plan is not None and proposed else []

    def late(self, now: float) -> list[Action]:
        """Somebody has been waited for too long: another one may be quicker."""
        if self.newcomer is not None:
            self._offers.bench(self.newcomer, now)
        return self.drop()

    # The copy, and who is to have it.

    def copied(self, event: CopyHeard, plan: Plan, now: float) -> list[Action]:
        """The stage is copied. Raises RemoteProtocolError where that is not its state.

        A plan says one codec of each stage: at a boundary where those change, another copy is wanted.
        """
        if self.state != "copying" or event.stage != self.stage:
            return []
        if len(event.codecs) != len(plan.stages):
            raise RemoteProtocolError("a copy of a stage has not one codec for each stage")
        if event.codecs != event.later:
            return [OrderCopy(plan=plan, stage=self.stage)]
        owned = {tensor.name for tensor in self._expected[event.stage]}
        check_copy([one for one in event.tensors if one.tensor.name in owned], self._expected[event.stage])
        self._copy = event
        takers = self._offers.takers(plan, self.stage, self._leaving, now)
        if not takers:
            return self.drop()
        self._enter("proposing", self.sentence, self.deadline)
        return [MakeSuccessor(plan=plan, stage=self.stage, takers=takers, copy=event)]

    def awaits(self, event: SuccessorMade | SuccessorImpossible) -> bool:
        """Whether this is the answer that is due, and not one to a hand-over before."""
        return self.state == "proposing" and event.copy is self._copy

    def made(self, plan: Plan, now: float) -> list[Action]:
        """The plan to propose."""
        self.plan = plan
        who = f"stage {self.stage + 1} moves to peer {short(PeerId(plan.stages[self.stage].holder))}"
        self._enter("catching up", f"{who}, which catches up", now + CATCHING_UP * self._loading)
        self._ready.clear()
        return [Propose(plan=plan)]

    def impossible(self, sentence: str) -> None:
        """No peer can run the stage, or not now."""
        self.drop()
        self.sentence = sentence

    # The change.

    def awaits_holders(self, generation: int) -> bool:
        """Whether holders are to say that they are ready for the plan ``generation``."""
        return self.state == "catching up" and self.plan is not None and generation == self.plan.generation

    def loaded(self, event: StageLoaded, plan: Plan) -> list[Action]:
        """A holder knows the proposed plan, or the newcomer is near."""
        proposed = self.plan
        if proposed is None:
            return []
        if event.stage >= len(proposed.stages) or proposed.stages[event.stage].holder != event.peer:
            raise RemoteProtocolError(f"it does not hold stage {event.stage} of the proposed plan")
        self._ready.add(event.stage)
        if len(self._ready) < len(proposed.stages):
            return []
        self._enter("switching", self.sentence, self.deadline)
        return [SwitchPlan(plan=proposed, recorder=PeerId(plan.stages[-1].holder))]

    def is_lost(self, generation: int, peer: PeerId) -> bool:
        """Whether a stage is lost that the proposed plan gives to ``peer``."""
        proposed = self.plan if self.state in {"catching up", "switching"} else None
        return proposed is not None and generation == proposed.generation and peer == self.newcomer

    def is_early(self, event: ProgressHeard) -> bool:
        """Whether a record is of the proposed plan's recorder, whose predecessor is still to be heard."""
        if self.state != "switching" or self.plan is None:
            return False
        recorder = self.plan.stages[-1]
        early = self.stage == len(self.plan.stages) - 1 and (event.peer, event.progress.incarnation) == (
            recorder.holder,
            recorder.incarnation,
        )
        if early:
            self._early.append(event)
        return early

    def may_begin(self, event: TakenHeard, plan: Plan) -> bool:
        """Whether the proposed plan is in force now.

        Raises RemoteProtocolError where anybody but the recorder says so.
        """
        if self.state != "switching" or self.plan is None or event.generation != self.plan.generation:
            return False
        if event.peer != plan.stages[-1].holder:
            raise RemoteProtocolError("a plan was said to be in force by somebody who does not settle steps")
        return True

    def taken(self, step: Step) -> tuple[Plan, list[ProgressHeard]]:
        """The proposed plan holds from ``step`` on; that plan, and the records that came too early."""
        if self.plan is None:
            raise LocalError("no plan is proposed")
        early, self._early = self._early, []
        self._enter("taking over", self.sentence, None)
        self._from = step
        return self.plan, early

    def is_over(self, steps: int) -> bool:
        """Whether the newcomer has made a step; then the next hand-over may begin."""
        return self.state == "taking over" and self._from is not None and steps > self._from

    def _enter(self, state: State, sentence: str, deadline: float | None) -> None:
        self.state, self.sentence, self.deadline = state, sentence, deadline
