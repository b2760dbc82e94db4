"""The coordination machine: scenarios, and any order of events a swarm can bring."""

import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from swarm.errors import RemoteProtocolError
from swarm.ids import Generation, JobId, PeerId, Step, short
from swarm.protocol import coordination_events as say
from swarm.protocol.coordination import CoordinationMachine
from swarm.protocol.lines import COPY_SECONDS, LEAD_SECONDS, SNAPSHOT_SECONDS, Line
from swarm.protocol.offers import MOST_SETTLE_SECONDS, SETTLE_SECONDS
from swarm.protocol.progress import MOST_DEPARTURES
from swarm.protocol.stalls import FIRST_STEP_SECONDS, LOADING_SECONDS, STALLED_STEPS
from swarm.protocol.standing import ENDED
from swarm.protocol.terms import JobTerms, Resources
from swarm.wire.codecs import CodecSpec
from swarm.wire.messages.jobs import JobProgress
from swarm.wire.records.blobs import Blob, TensorBlob
from swarm.wire.records.plan import Plan, StagePlan
from swarm.wire.records.state import StateTensor

JOB = JobId("a" * 52)
PEERS = [PeerId(letter * 32) for letter in "bcdef"]


def terms(**changes: Any) -> JobTerms:
    return JobTerms(
        **(
            {"job": JOB, "steps": 3, "evaluates": True, "validate_every": 0, "patience": 0.0, "bytes": 1000}
            | changes
        )
    )


def plan(*holders: PeerId) -> Plan:
    stages = tuple(
        StagePlan(
            first=10 * index,
            last=10 * index + 10,
            evaluation=(),
            holder=holder,
            incarnation=0,
            depth=len(holders) - index,
            memory=1000,
            seconds=0.0,
        )
        for index, holder in enumerate(holders)
    )
    return Plan(format=1, job=JOB, generation=0, step=0, stages=stages, explanation=())


def tensor(name: str) -> TensorBlob:
    return TensorBlob(name=name, dtype="float32", shape=(1,), blob=Blob(size=4, blocks=("q" * 52,)))


def made(*holders: PeerId) -> say.PlanMade:
    """A plan whose stage k is to return the tensor ``wk``."""
    return say.PlanMade(plan=plan(*holders), results=tuple((tensor(f"w{k}"),) for k in range(len(holders))))


def progress(step: int, outcome: str = "applied", incarnation: int = 1) -> JobProgress:
    return JobProgress(
        job=JOB,
        incarnation=incarnation,
        step=step,
        outcome=outcome,  # type: ignore[arg-type]
        clip=1.0,
        norm=1.0,
        loss=2.0 - step / 10,
        cause="the loss became NaN" if outcome == "failed" else "",
    )


def copied(plan: Plan, stage: int, step: int = 1, **changes: Any) -> say.CopyHeard:
    """The copy of a stage that owns the tensor ``wk``, from its holder."""
    codecs = (CodecSpec(),) * len(plan.stages)
    fields: dict[str, Any] = {
        "peer": PeerId(plan.stages[stage].holder),
        "generation": Generation(plan.generation),
        "stage": stage,
        "step": step,
        "tensors": (StateTensor("value", tensor(f"w{stage}")),),
        "codecs": codecs,
        "later": codecs,
    }
    return say.CopyHeard(**(fields | changes))


def succeeded(action: say.MakeSuccessor) -> say.SuccessorMade:
    """The plan that gives the stage to the first who could take it."""
    stages = list(action.plan.stages)
    old = stages[action.stage]
    stages[action.stage] = msgspec.structs.replace(
        old, holder=action.takers[0].peer, incarnation=old.incarnation + 1
    )
    plan = msgspec.structs.replace(action.plan, step=action.copy.step, stages=tuple(stages))
    return say.SuccessorMade(copy=action.copy, plan=plan)


def offered(peer: PeerId, memory: int = 2000) -> say.OfferArrived:
    return say.OfferArrived(resources=Resources(peer=peer, memory=memory, flops=1e9))


class Driver:
    """Feeds a machine and keeps its invariants checked."""

    def __init__(self, begin: say.Begin | None = None, **changes: Any) -> None:
        self.machine = CoordinationMachine(terms(**changes))
        self.now = 100.0
        self.feed(begin or say.Begin())

    def feed(self, event: say.Event) -> list[say.Action]:
        actions = self.machine.handle(event, now=self.now)
        self.machine.check()
        return actions

    def later(self, seconds: float) -> list[say.Action]:
        self.now += seconds
        return self.feed(say.Tick())

    @property
    def state(self) -> str:
        return self.machine.statistics().state

    @property
    def sentence(self) -> str:
        return self.machine.statistics().sentence

    def train(self, *holders: PeerId) -> Plan:
        """Up to the state training."""
        for holder in holders:
            self.feed(offered(holder))
        [make] = self.later(SETTLE_SECONDS)
        assert isinstance(make, say.MakePlan)
        issue = self.feed(made(*holders))[0]
        assert isinstance(issue, say.IssuePlan)
        for index, holder in enumerate(holders):
            self.load(holder, issue.plan.generation, index)
        assert self.state == "training"
        return issue.plan

    def load(self, peer: PeerId, generation: int, stage: int) -> list[say.Action]:
        return self.feed(say.StageLoaded(peer=peer, generation=Generation(generation), stage=stage))


def test_a_job_from_offers_to_kept_weights() -> None:
    driver = Driver()
    found = driver.train(PEERS[0], PEERS[1])
    assert [stage.incarnation for stage in found.stages] == [1, 1]
    for step in range(3):
        heard = progress(step)
        assert driver.feed(say.ProgressHeard(peer=PEERS[1], progress=heard)) == [say.Record(progress=heard)]
    assert driver.state == "training"
    driver.feed(say.ProgressHeard(peer=PEERS[1], progress=progress(3, "evaluated")))
    assert driver.state == "finishing"
    assert driver.machine.statistics().held_out == pytest.approx(1.7)
    results = [
        driver.feed(
            say.ResultHeard(peer=peer, generation=Generation(1), stage=stage, tensors=(tensor(f"w{stage}"),))
        )
        for stage, peer in enumerate(PEERS[:2])
    ]
    assert results == [[], [say.KeepWeights(tensors=(tensor("w0"), tensor("w1")))]]
    driver.feed(say.WeightsKept())
    assert driver.state == "done"


def test_peers_that_start_together_share_one_plan() -> None:
    driver = Driver()
    driver.feed(offered(PEERS[0]))
    assert driver.later(SETTLE_SECONDS / 2) == []
    driver.feed(offered(PEERS[1]))
    assert driver.later(SETTLE_SECONDS / 2) == []
    [make] = driver.later(SETTLE_SECONDS)
    assert isinstance(make, say.MakePlan)
    assert [resources.peer for resources in make.offers] == PEERS[:2]


def test_too_few_peers_wait_with_the_planners_sentence_until_another_comes() -> None:
    driver = Driver(patience=60.0)
    driver.feed(offered(PEERS[0]))
    driver.later(SETTLE_SECONDS)
    driver.feed(say.PlanImpossible(sentence="the job needs 61.2 MiB, the peer offers 15.0 MiB"))
    assert (driver.state, driver.sentence) == ("waiting", "the job needs 61.2 MiB, the peer offers 15.0 MiB")
    assert driver.machine.statistics().until == 160.0
    assert driver.later(1) == []
    driver.feed(offered(PEERS[1]))
    [make] = driver.later(SETTLE_SECONDS)
    assert isinstance(make, say.MakePlan)


def test_patience_ends_in_failure_that_says_what_was_missing() -> None:
    driver = Driver(patience=60.0)
    driver.feed(offered(PEERS[0]))
    driver.later(SETTLE_SECONDS)
    driver.feed(say.PlanImpossible(sentence="the job needs 61.2 MiB, the peer offers 15.0 MiB"))
    driver.later(60.0)
    assert driver.state == "failed"
    assert driver.sentence == "after 60 s: the job needs 61.2 MiB, the peer offers 15.0 MiB"


def test_a_holder_that_leaves_while_loading_is_planned_around_under_a_new_incarnation() -> None:
    driver = Driver()
    for peer in PEERS[:3]:
        driver.feed(offered(peer))
    driver.later(SETTLE_SECONDS)
    driver.feed(made(PEERS[0], PEERS[1]))
    driver.load(PEERS[0], 1, 0)
    driver.feed(say.PeerLeft(peer=PEERS[1], reason="left: its user ended it"))
    assert driver.state == "waiting"
    assert "left: its user ended it, before stage 2 was loaded" in driver.sentence
    [make] = driver.later(SETTLE_SECONDS)
    assert isinstance(make, say.MakePlan)
    assert [r.peer for r in make.offers] == [PEERS[0], PEERS[2]]
    issue = driver.feed(made(PEERS[0], PEERS[2]))[0]
    assert isinstance(issue, say.IssuePlan)
    assert [(s.holder, s.incarnation) for s in issue.plan.stages] == [(PEERS[0], 1), (PEERS[2], 2)]
    assert driver.load(PEERS[0], 1, 0) == []  # of the old plan


def test_a_holder_that_leaves_while_training_is_named_and_the_job_goes_on_from_its_last_line() -> None:
    driver = Driver()
    before = driver.train(PEERS[0], PEERS[1])
    driver.feed(say.ProgressHeard(peer=PEERS[1], progress=progress(0)))
    driver.feed(say.PeerLeft(peer=PEERS[0], reason="vanished: connection reset"))
    assert driver.state == "waiting"
    lost = "peer bbbbbbbb vanished: connection reset, at step 1 of 3, and with it stage 1 of 2 is lost"
    assert driver.sentence == f"another plan: {lost}; it goes on from step 0"
    after = driver.train(PEERS[2], PEERS[1])
    incarnations = {stage.incarnation for stage in before.stages}
    assert incarnations.isdisjoint(stage.incarnation for stage in after.stages)
    assert applied(driver, 0, incarnation=2) == []
    assert applied(driver, 1, incarnation=2) == [say.Record(progress=progress(1, incarnation=2))]


def snapshot(stage: int, step: int, name: str = "") -> say.SnapshotHeard:
    value = StateTensor("value", tensor(name or f"w{stage}"))
    return say.SnapshotHeard(
        peer=PEERS[stage], generation=Generation(1), stage=stage, step=step, tensors=(value,)
    )


def applied(driver: Driver, step: int, seconds: float = 1.0, incarnation: int = 1) -> list[say.Action]:
    driver.now += seconds
    return driver.feed(say.ProgressHeard(peer=PEERS[1], progress=progress(step, incarnation=incarnation)))


def ordered(driver: Driver, steps: range) -> tuple[int, Step]:
    """The first of ``steps``, a second each, after which a snapshot is ordered, and of which boundary."""
    for step in steps:
        for action in applied(driver, step):
            if isinstance(action, say.OrderSnapshot):
                return step, action.step
    raise AssertionError("no snapshot was ordered")


def test_a_line_is_what_all_stages_were_at_a_boundary_that_they_heard_of_in_time() -> None:
    driver = Driver(steps=1000)
    driver.train(PEERS[0], PEERS[1])
    settled, boundary = ordered(driver, range(100))
    assert settled == SNAPSHOT_SECONDS - 1
    assert boundary >= settled + 2 + LEAD_SECONDS
    assert driver.feed(snapshot(0, boundary)) == []
    [keep] = driver.feed(snapshot(1, boundary))
    assert isinstance(keep, say.KeepLine)
    assert [one.tensor.name for one in keep.line.tensors] == ["w0", "w1"]
    driver.feed(say.LineKept(line=keep.line))
    driver.feed(say.PeerLeft(peer=PEERS[0], reason="left"))
    assert driver.sentence.endswith(f"it goes on from step {boundary}")
    driver.feed(offered(PEERS[2]))
    [make] = driver.later(SETTLE_SECONDS)
    assert isinstance(make, say.MakePlan)
    assert make.line == keep.line


def test_a_boundary_that_a_holder_heard_of_too_late_is_followed_by_one_with_more_notice() -> None:
    driver = Driver(steps=1000)
    driver.train(PEERS[0], PEERS[1])
    settled, boundary = ordered(driver, range(100))
    driver.feed(snapshot(0, boundary))
    again, later = ordered(driver, range(settled + 1, 500))
    assert again == boundary + COPY_SECONDS
    assert later - again > boundary - settled
    assert driver.feed(snapshot(1, boundary)) == []


def test_a_line_that_could_not_be_kept_leaves_the_one_before() -> None:
    driver = Driver(steps=1000)
    driver.train(PEERS[0], PEERS[1])
    settled, boundary = ordered(driver, range(100))
    driver.feed(snapshot(0, boundary))
    driver.feed(snapshot(1, boundary))
    driver.feed(say.LineLost())
    driver.feed(say.PeerLeft(peer=PEERS[0], reason="left"))
    assert driver.sentence.endswith("it goes on from step 0")
    assert settled < boundary


def test_a_copy_with_other_tensors_than_its_stage_has_is_no_copy() -> None:
    driver = Driver(steps=1000)
    driver.train(PEERS[0], PEERS[1])
    _, boundary = ordered(driver, range(100))
    with pytest.raises(RemoteProtocolError, match="has not the stage's tensors"):
        driver.feed(snapshot(0, boundary, name="w1"))


def test_a_job_whose_weights_are_for_some_keeps_no_lines() -> None:
    driver = Driver(steps=1000, keeps_lines=False)
    driver.train(PEERS[0], PEERS[1])
    with pytest.raises(AssertionError, match="no snapshot was ordered"):
        ordered(driver, range(200))


def test_a_job_that_goes_back_again_and_again_without_a_new_step_fails() -> None:
    driver = Driver(steps=1000)
    for number in range(MOST_DEPARTURES + 1):
        assert driver.state == "waiting"
        driver.train(PEERS[0], PEERS[1])
        assert driver.machine.plan is not None
        news = applied(driver, 0, incarnation=driver.machine.plan.stages[1].incarnation)
        assert bool(news) == (number == 0)
        driver.feed(say.PeerLeft(peer=PEERS[0], reason="left"))
    assert driver.state == "failed"
    assert driver.sentence == "peer bbbbbbbb left, at step 1 of 1000, and with it stage 1 of 2 is lost"


def test_a_job_that_has_made_steps_waits_a_week_for_peers_to_come_back() -> None:
    driver = Driver(steps=1000, patience=60.0)
    driver.train(PEERS[0], PEERS[1])
    applied(driver, 0)
    driver.feed(say.PeerLeft(peer=PEERS[0], reason="left"))
    driver.feed(say.PeerLeft(peer=PEERS[1], reason="left"))
    driver.later(6.9 * 86400)
    assert driver.state == "waiting"
    driver.later(0.2 * 86400)
    assert driver.state == "failed"


def test_what_goes_wrong_twice_at_one_step_ends_the_job_with_its_cause() -> None:
    driver = Driver(steps=1000)
    for state in ("waiting", "failed"):
        generation = driver.train(PEERS[0], PEERS[1]).generation
        lost = say.StageLost(peer=PEERS[0], generation=Generation(generation), stage=0, sentence="no memory")
        driver.feed(lost)
        assert driver.state == state
    assert driver.sentence == "stage 1 of 2 on peer bbbbbbbb ended at step 0: no memory"


def test_a_job_that_is_taken_up_again_goes_on_from_its_line_under_numbers_that_no_plan_has_had() -> None:
    line = Line(step=Step(2), tensors=(StateTensor("value", tensor("w0")),))
    told = tuple(progress(step) for step in range(4))
    driver = Driver(say.Begin(line=line, generation=Generation(6), records=told), steps=9, patience=60.0)
    assert driver.sentence.endswith("its coordinator is back, and the job goes on from step 2")
    assert driver.machine.statistics().step == 4
    assert driver.machine.statistics().until == driver.now + 7 * 86400
    driver.feed(offered(PEERS[0]))
    [make] = driver.later(SETTLE_SECONDS)
    assert isinstance(make, say.MakePlan)
    assert (make.line, make.generation) == (line, 7)
    answer = made(PEERS[0])
    plan = msgspec.structs.replace(answer.plan, step=2)
    issue = driver.feed(say.PlanMade(plan=plan, results=answer.results))[0]
    assert isinstance(issue, say.IssuePlan)
    assert (issue.plan.generation, issue.plan.stages[0].incarnation) == (7, 7)
    driver.load(PEERS[0], 7, 0)
    records = [progress(step, incarnation=7) for step in (2, 3, 4)]
    heard = [driver.feed(say.ProgressHeard(peer=PEERS[0], progress=record)) for record in records]
    assert heard == [[], [], [say.Record(progress=records[-1])]]


def test_offers_that_come_before_the_job_begins_are_planned_with_when_it_does() -> None:
    machine = CoordinationMachine(terms())
    machine.handle(offered(PEERS[0]), now=0.0)
    assert machine.handle(say.Tick(), now=SETTLE_SECONDS) == []
    machine.handle(say.Begin(), now=SETTLE_SECONDS)
    [make] = machine.handle(say.Tick(), now=SETTLE_SECONDS)
    assert isinstance(make, say.MakePlan)


def test_records_that_were_not_in_order_are_not_taken_up() -> None:
    with pytest.raises(RemoteProtocolError, match="not due"):
        Driver(say.Begin(generation=Generation(1), records=(progress(0), progress(2))))


def test_somebody_else_leaving_changes_nothing() -> None:
    driver = Driver()
    driver.train(PEERS[0], PEERS[1])
    assert driver.feed(say.PeerLeft(peer=PEERS[4], reason="left")) == []
    assert driver.state == "training"


def test_a_failed_step_ends_the_job_with_its_cause() -> None:
    driver = Driver()
    driver.train(PEERS[0])
    driver.feed(say.ProgressHeard(peer=PEERS[0], progress=progress(0, "failed")))
    assert (driver.state, driver.sentence) == ("failed", "step 0: the loss became NaN")


@pytest.mark.parametrize(
    "event",
    [
        say.ProgressHeard(peer=PEERS[0], progress=progress(0)),
        say.ProgressHeard(peer=PEERS[1], progress=progress(0, incarnation=7)),
        say.StageLoaded(peer=PEERS[0], generation=Generation(1), stage=1),
        say.StageLoaded(peer=PEERS[0], generation=Generation(1), stage=9),
        say.StageLost(peer=PEERS[2], generation=Generation(1), stage=0, sentence=""),
        say.ResultHeard(peer=PEERS[2], generation=Generation(1), stage=0, tensors=()),
    ],
)
def test_only_who_holds_a_stage_speaks_for_it(event: say.Event) -> None:
    driver = Driver()
    driver.train(PEERS[0], PEERS[1])
    with pytest.raises(RemoteProtocolError):
        driver.feed(event)
    assert driver.state == "training"


@pytest.mark.parametrize(
    "tensors",
    [
        (),
        (tensor("w1"),),
        (tensor("w0"), tensor("w0")),
        (tensor("w0"), tensor("x")),
        (msgspec.structs.replace(tensor("w0"), dtype="float64"),),
        (msgspec.structs.replace(tensor("w0"), shape=(4,)),),
        (msgspec.structs.replace(tensor("w0"), blob=Blob(size=8, blocks=("q" * 52,))),),
        (msgspec.structs.replace(tensor("w0"), blob=Blob(size=4, blocks=("q" * 52,) * 2)),),
    ],
)
def test_a_result_that_is_not_the_stages_tensors_is_charged_to_its_sender(tensors: tuple[Any, ...]) -> None:
    driver = Driver(evaluates=False, steps=1)
    driver.train(PEERS[0])
    driver.feed(say.ProgressHeard(peer=PEERS[0], progress=progress(0)))
    result = say.ResultHeard(peer=PEERS[0], generation=Generation(1), stage=0, tensors=tensors)
    with pytest.raises(RemoteProtocolError, match="has not the stage's tensors"):
        driver.feed(result)
    assert driver.state == "finishing"


def test_results_before_the_last_step_end_nothing() -> None:
    driver = Driver(evaluates=False, steps=2)
    driver.train(PEERS[0])
    result = say.ResultHeard(peer=PEERS[0], generation=Generation(1), stage=0, tensors=(tensor("w0"),))
    assert driver.feed(result) == []
    driver.feed(say.ProgressHeard(peer=PEERS[0], progress=progress(0)))
    assert driver.state == "training"
    last = driver.feed(say.ProgressHeard(peer=PEERS[0], progress=progress(1)))
    assert last[-1] == say.KeepWeights(tensors=(tensor("w0"),))
    assert driver.feed(result) == []


@pytest.mark.parametrize(
    "forged",
    [
        progress(1),
        progress(2, "evaluated"),
        progress(0, "evaluated"),
        progress(7, "failed"),
        msgspec.structs.replace(progress(0), loss=math.inf),
        msgspec.structs.replace(progress(0), norm=math.inf),
    ],
)
def test_a_record_that_is_not_due_is_charged_to_its_sender(forged: JobProgress) -> None:
    driver = Driver()
    driver.train(PEERS[0])
    with pytest.raises(RemoteProtocolError, match="not due"):
        driver.feed(say.ProgressHeard(peer=PEERS[0], progress=forged))
    assert driver.machine.statistics().step == 0


@pytest.mark.parametrize(
    ("done", "forged"),
    [
        (1, progress(1, "evaluated")),
        (2, progress(2)),
        (2, progress(4, "evaluated")),
        (2, progress(3, "failed")),
        (2, msgspec.structs.replace(progress(2, "evaluated"), loss=math.inf)),
        (3, progress(2, "evaluated")),
        (3, progress(3, "evaluated")),
    ],
)
def test_an_evaluation_between_steps_counts_once_and_when_it_is_due(done: int, forged: JobProgress) -> None:
    driver = Driver(steps=5, validate_every=2)
    driver.train(PEERS[0])
    due = [progress(0), progress(1), progress(2, "evaluated"), progress(2), progress(3)]
    due += [progress(4, "evaluated"), progress(4), progress(5, "evaluated")]
    for heard in due[:done]:
        driver.feed(say.ProgressHeard(peer=PEERS[0], progress=heard))
    with pytest.raises(RemoteProtocolError, match="not due"):
        driver.feed(say.ProgressHeard(peer=PEERS[0], progress=forged))
    for heard in due[done:]:
        assert driver.state == "training"
        assert math.isnan(driver.machine.statistics().held_out)
        kept = driver.feed(say.ProgressHeard(peer=PEERS[0], progress=heard))
        assert kept[0] == say.Record(progress=heard)
    assert driver.state == "finishing"
    assert driver.machine.statistics().held_out == pytest.approx(1.5)


def test_without_held_out_samples_no_evaluation_is_due() -> None:
    driver = Driver(steps=1, evaluates=False)
    driver.train(PEERS[0])
    for step in (0, 1):
        with pytest.raises(RemoteProtocolError, match="not due"):
            driver.feed(say.ProgressHeard(peer=PEERS[0], progress=progress(step, "evaluated")))


def test_records_before_and_after_training_are_not_kept() -> None:
    driver = Driver(steps=1, evaluates=False)
    heard = say.ProgressHeard(peer=PEERS[0], progress=progress(0))
    assert driver.feed(heard) == []
    driver.train(PEERS[0])
    assert driver.feed(heard)[0] == say.Record(progress=progress(0))
    assert driver.feed(heard) == []


def reported(peer: PeerId, *links: PeerId) -> say.LinksReported:
    return say.LinksReported(peer=peer, links=frozenset(links))


def planned_with(driver: Driver) -> tuple[list[PeerId], tuple[str, ...]]:
    [make] = driver.later(SETTLE_SECONDS)
    assert isinstance(make, say.MakePlan)
    return [offer.peer for offer in make.offers], make.left_out


def test_a_plan_is_made_with_peers_that_are_all_linked_and_says_who_is_left_out() -> None:
    one, two, three = PEERS[:3]
    driver = Driver()
    driver.feed(reported(one, two, three))
    driver.feed(reported(two, one))
    driver.feed(reported(three, one))
    for peer, memory in ((one, 1000), (two, 3000), (three, 2000)):
        driver.feed(offered(peer, memory))
    peers, told = planned_with(driver)
    assert peers == [one, two]
    assert told == (
        f"peer {short(three)} is left out: it has no link with {short(two)}, and waits for a relay",
    )


def test_a_link_that_only_one_end_reports_counts_for_nothing() -> None:
    driver = Driver()
    driver.feed(reported(PEERS[0], PEERS[1]))
    driver.feed(reported(PEERS[1]))
    driver.feed(offered(PEERS[0], 1000))
    driver.feed(offered(PEERS[1], 2000))
    assert planned_with(driver)[0] == [PEERS[1]]


def test_a_link_that_comes_up_is_a_reason_to_plan_again() -> None:
    driver = Driver()
    for peer in PEERS[:2]:
        driver.feed(reported(peer))
        driver.feed(offered(peer))
    assert len(planned_with(driver)[0]) == 1
    driver.feed(say.PlanImpossible(sentence="too little"))
    driver.feed(reported(PEERS[0], PEERS[1]))
    driver.feed(reported(PEERS[1], PEERS[0]))
    assert planned_with(driver) == ([PEERS[0], PEERS[1]], ())


def test_offers_that_keep_changing_do_not_put_off_the_plan_for_ever() -> None:
    driver = Driver()
    began, found, memory = driver.now, [], 1000
    while not found:
        memory += 1
        driver.feed(offered(PEERS[0], memory))
        found = driver.later(SETTLE_SECONDS / 4)
    assert isinstance(found[0], say.MakePlan)
    assert driver.now - began == MOST_SETTLE_SECONDS


def test_a_peer_that_cannot_load_is_left_out_for_longer_each_time_and_patience_goes_on() -> None:
    driver = Driver(patience=200.0)
    driver.feed(offered(PEERS[0]))
    tried: list[float] = []
    while driver.state != "failed":
        assert driver.machine.deadline is not None
        driver.now = max(driver.now, driver.machine.deadline)
        for action in driver.feed(say.Tick()):
            if isinstance(action, say.MakePlan):
                tried.append(driver.now)
                issue = driver.feed(made(PEERS[0]))[0]
                assert isinstance(issue, say.IssuePlan)
                generation = issue.plan.generation
                driver.feed(
                    say.StageLost(peer=PEERS[0], generation=generation, stage=0, sentence="no")  # type: ignore[arg-type]
                )
    assert [round(b - a) for a, b in pairwise(tried)] == [30, 60]
    assert driver.now == 300.0
    assert driver.sentence.startswith("after 200 s: another plan: stage 1 of 1 on peer bbbbbbbb could not be")


def test_loading_has_an_end_from_the_jobs_size_and_others_get_the_stage() -> None:
    driver = Driver(bytes=125_000 * 60)
    driver.feed(offered(PEERS[0]))
    driver.feed(offered(PEERS[1]))
    driver.later(SETTLE_SECONDS)
    driver.feed(made(PEERS[0]))
    assert driver.machine.deadline == driver.now + LOADING_SECONDS + 60.0
    driver.later(LOADING_SECONDS + 60.0)
    assert (driver.state, driver.sentence) == (
        "waiting",
        "another plan: stage 1 of 1 on peer bbbbbbbb was not loaded within 180 s",
    )
    [make] = driver.later(SETTLE_SECONDS)
    assert isinstance(make, say.MakePlan)
    assert [resources.peer for resources in make.offers] == [PEERS[1]]


def test_a_step_that_nobody_settles_does_not_hold_up_the_job_for_ever() -> None:
    driver = Driver(steps=1000)
    driver.train(PEERS[0])
    assert driver.machine.deadline == driver.now + FIRST_STEP_SECONDS
    driver.now += 1000.0
    driver.feed(say.ProgressHeard(peer=PEERS[0], progress=progress(0)))
    assert driver.machine.deadline == driver.now + STALLED_STEPS * 1000.0
    driver.now += 10.0
    driver.feed(say.ProgressHeard(peer=PEERS[0], progress=progress(1)))
    assert driver.later(STALLED_STEPS * 1000.0 - 1.0) == []
    driver.later(1.0)
    assert driver.state == "failed"
    assert driver.sentence == "step 2 was not settled within 20000 s: a holder does not go on"


def test_a_holder_that_never_returns_its_weights_does_not_hold_up_the_end() -> None:
    driver = Driver(steps=1, evaluates=False)
    driver.train(PEERS[0])
    driver.feed(say.ProgressHeard(peer=PEERS[0], progress=progress(0)))
    driver.later(LOADING_SECONDS + 1.0)
    assert driver.state == "failed"
    assert "did not return its trained weights" in driver.sentence


class AnyOrder(RuleBasedStateMachine):
    """Whatever happens, in whatever order: invariants hold, ends are final, generations rise."""

    def __init__(self) -> None:
        super().__init__()
        self.driver = Driver(patience=50.0, steps=4, validate_every=2)
        self.planning = False
        self.generations: list[int] = []
        self.ended = ""
        self.asked: say.Action | None = None

    def feed(self, event: say.Event) -> None:
        try:
            actions = self.driver.feed(event)
        except RemoteProtocolError:
            return
        for action in actions:
            if isinstance(action, say.MakePlan):
                assert action.offers
                self.planning = True
            if isinstance(action, say.IssuePlan | say.Propose):
                self.generations.append(action.plan.generation)
            if isinstance(action, say.OrderCopy | say.MakeSuccessor | say.Propose | say.SwitchPlan):
                self.asked = action

    @precondition(lambda self: self.asked is not None)
    @rule()
    def hand_over_goes_on(self) -> None:
        answer = self.asked
        match answer:
            case say.OrderCopy(plan=plan, stage=stage):
                self.feed(copied(plan, stage))
            case say.MakeSuccessor():
                self.feed(succeeded(answer))
            case say.Propose(plan=plan):
                for index, planned in enumerate(plan.stages):
                    self.loaded(PeerId(planned.holder), index, plan.generation)
            case say.SwitchPlan(plan=plan, recorder=recorder):
                self.feed(say.TakenHeard(peer=recorder, generation=Generation(plan.generation), step=Step(1)))

    @rule(peer=st.sampled_from(PEERS), memory=st.sampled_from([0, 1000, 2000]))
    def offer(self, peer: PeerId, memory: int) -> None:
        self.feed(offered(peer, memory))

    @rule(peer=st.sampled_from(PEERS))
    def leave(self, peer: PeerId) -> None:
        self.feed(say.PeerLeft(peer=peer, reason="left"))

    @precondition(lambda self: self.planning)
    @rule(holders=st.lists(st.sampled_from(PEERS), min_size=1, max_size=3))
    def planned(self, holders: list[PeerId]) -> None:
        self.planning = False
        self.feed(made(*holders))

    @precondition(lambda self: self.planning)
    @rule()
    def impossible(self) -> None:
        self.planning = False
        self.feed(say.PlanImpossible(sentence="too little memory"))

    @rule(peer=st.sampled_from(PEERS), stage=st.integers(0, 2), generation=st.integers(0, 4))
    def loaded(self, peer: PeerId, stage: int, generation: int) -> None:
        self.feed(say.StageLoaded(peer=peer, generation=Generation(generation), stage=stage))

    @rule()
    def all_loaded(self) -> None:
        found = self.driver.machine.plan
        for index, stage in enumerate(found.stages if found else ()):
            self.loaded(PeerId(stage.holder), index, found.generation if found else 0)

    @rule(peer=st.sampled_from(PEERS), stage=st.integers(0, 2), generation=st.integers(0, 4))
    def lost(self, peer: PeerId, stage: int, generation: int) -> None:
        self.feed(
            say.StageLost(peer=peer, generation=Generation(generation), stage=stage, sentence="out of memory")
        )

    @rule(
        peer=st.sampled_from(PEERS), step=st.integers(0, 4), outcome=st.sampled_from(["applied", "evaluated"])
    )
    def advanced(self, peer: PeerId, step: int, outcome: str) -> None:
        self.feed(say.ProgressHeard(peer=peer, progress=progress(step, outcome)))

    @rule(peer=st.sampled_from(PEERS), stage=st.integers(0, 2), generation=st.integers(0, 4))
    def result(self, peer: PeerId, stage: int, generation: int) -> None:
        self.feed(
            say.ResultHeard(
                peer=peer, generation=Generation(generation), stage=stage, tensors=(tensor(f"w{stage}"),)
            )
        )

    @rule(seconds=st.sampled_from([0.1, SETTLE_SECONDS, 30.0]))
    def time_passes(self, seconds: float) -> None:
        self.driver.now += seconds
        self.feed(say.Tick())

    @invariant()
    def generations_rise(self) -> None:
        assert self.generations == sorted(set(self.generations))

    @invariant()
    def ends_are_final_and_explained(self) -> None:
        found = self.driver.machine.statistics()
        if found.state in ENDED:
            assert not self.ended or self.ended == found.state
            assert found.sentence
            self.ended = found.state
        else:
            assert not self.ended

    @invariant()
    def waiting_never_outlives_its_patience(self) -> None:
        machine = self.driver.machine
        if machine.statistics().state == "waiting":
            assert machine.deadline is not None
            assert math.isfinite(machine.deadline)


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_plans_begin_at_the_first_step() -> None:
    driver = Driver()
    driver.feed(offered(PEERS[0]))
    [make] = driver.later(SETTLE_SECONDS)
    assert isinstance(make, say.MakePlan)
    assert make.line == Line(step=Step(0))
