"""Stages that change hands, as their job's coordinator decides it."""

from collections.abc import Callable
from typing import Any

import pytest

from swarm.errors import RemoteProtocolError
from swarm.ids import Generation, PeerId, Step, short
from swarm.protocol import coordination_events as say
from swarm.protocol.handover import CATCHING_UP
from swarm.protocol.lines import BEGINNING, Line
from swarm.protocol.stalls import LOADING_SECONDS
from swarm.wire.codecs import CodecSpec
from swarm.wire.records.plan import Plan
from tests.machines.test_coordination import PEERS, Driver, copied, offered, progress, succeeded

ONE, TWO, THREE, FOUR = PEERS[:4]


def only(actions: list[say.Action], kind: type[Any]) -> Any:
    """The one action of that kind, beside what is told."""
    [found] = [action for action in actions if not isinstance(action, say.Tell)]
    assert isinstance(found, kind)
    return found


class Handing(Driver):
    """A job in training on two peers; others offer memory, too."""

    def __init__(self, *others: PeerId, **changes: Any) -> None:
        super().__init__(**({"steps": 100} | changes))
        self.plan = self.train(ONE, TWO)
        for peer in (ONE, TWO):
            self.feed(offered(peer, 1000))
        for peer in others:
            self.feed(offered(peer))

    def withdraw(self, peer: PeerId) -> list[say.Action]:
        return self.feed(offered(peer, 0))

    def proposed(self, leaver: PeerId) -> Plan:
        """Up to the proposal of another plan."""
        copy = only(self.withdraw(leaver), say.OrderCopy)
        make = only(self.feed(copied(copy.plan, copy.stage)), say.MakeSuccessor)
        return self.answered(make)

    def answered(self, make: say.MakeSuccessor) -> Plan:
        plan = only(self.feed(succeeded(make)), say.Propose).plan
        assert isinstance(plan, Plan)
        return plan

    def ready(self, plan: Plan) -> list[say.Action]:
        """All holders know ``plan``, and the newcomer is near."""
        told = [self.load(PeerId(one.holder), plan.generation, k) for k, one in enumerate(plan.stages)]
        assert not any(told[:-1])
        return told[-1]

    def switching(self, leaver: PeerId) -> Plan:
        plan = self.proposed(leaver)
        switch = only(self.ready(plan), say.SwitchPlan)
        assert switch == say.SwitchPlan(plan=plan, recorder=TWO)
        return plan

    def taken(self, plan: Plan, step: int, peer: PeerId = TWO) -> list[say.Action]:
        taken = say.TakenHeard(peer=peer, generation=Generation(plan.generation), step=Step(step))
        return self.feed(taken)

    def applied(self, step: int, peer: PeerId = TWO, incarnation: int = 1) -> list[say.Action]:
        return self.feed(say.ProgressHeard(peer=peer, progress=progress(step, incarnation=incarnation)))

    def lost(self, peer: PeerId, generation: int, stage: int) -> list[say.Action]:
        lost = say.StageLost(peer=peer, generation=Generation(generation), stage=stage, sentence="no memory")
        return self.feed(lost)


def test_a_stage_whose_holder_withdraws_its_offer_moves_to_another_peer_while_the_job_trains() -> None:
    driver = Handing(THREE)
    plan = driver.switching(ONE)
    assert (plan.generation, plan.step) == (2, 1)
    assert [(one.holder, one.incarnation) for one in plan.stages] == [(THREE, 2), (TWO, 1)]
    assert driver.sentence == f"stage 1 moves to peer {short(THREE)}, which catches up"
    driver.applied(0)
    assert driver.taken(plan, 1) == [say.TellPlan(plan=plan)]
    assert (driver.state, driver.machine.plan) == ("training", plan)
    assert driver.feed(say.PeerLeft(peer=ONE, reason="left")) == []
    driver.applied(1)
    assert (driver.state, driver.sentence) == ("training", "")
    assert driver.lost(THREE, plan.generation, 0)
    assert driver.state == "waiting"


def test_the_recorders_stage_moves_and_its_first_record_may_come_before_the_word_of_the_old_one() -> None:
    driver = Handing(THREE)
    plan = driver.switching(TWO)
    assert [(one.holder, one.incarnation) for one in plan.stages] == [(ONE, 1), (THREE, 2)]
    assert driver.applied(1, THREE, incarnation=2) == []
    driver.applied(0)
    tell, *records = driver.taken(plan, 1)
    assert tell == say.TellPlan(plan=plan)
    assert [action.progress.step for action in records if isinstance(action, say.Record)] == [1]
    with pytest.raises(RemoteProtocolError, match="did not come from the holder of the last stage"):
        driver.applied(2, TWO)


def test_all_stages_of_a_peer_that_leaves_move_one_after_the_other() -> None:
    driver = Driver(steps=100)
    driver.train(ONE, ONE)
    driver.feed(offered(THREE, 4000))
    copy = only(driver.feed(offered(ONE, 0)), say.OrderCopy)
    assert copy.stage == 0
    driver.feed(copied(copy.plan, 1))  # nobody asked for that one
    make = only(driver.feed(copied(copy.plan, 0)), say.MakeSuccessor)
    plan = only(driver.feed(succeeded(make)), say.Propose).plan
    for index, one in enumerate(plan.stages):
        driver.load(PeerId(one.holder), plan.generation, index)
    driver.feed(say.ProgressHeard(peer=ONE, progress=progress(0)))
    driver.feed(say.TakenHeard(peer=ONE, generation=Generation(2), step=Step(1)))
    actions = driver.feed(say.ProgressHeard(peer=ONE, progress=progress(1)))
    assert say.OrderCopy(plan=plan, stage=1) in actions


def test_without_anybody_who_could_take_it_a_stage_stays_until_there_is_somebody() -> None:
    driver = Handing()
    driver.feed(offered(THREE, 900))
    told = driver.withdraw(ONE)
    who = f"peer {short(ONE)} wants to leave, with stage 1"
    sentence = f"{who}, and no other peer offers the memory for it and has links to all"
    assert told == [say.Tell(state="training", sentence=sentence)]
    assert only(driver.feed(offered(THREE)), say.OrderCopy).stage == 0


def test_a_peer_that_holds_a_stage_takes_another_one_where_it_has_the_memory_beside_it() -> None:
    driver = Handing()
    driver.feed(offered(TWO, 1999))
    assert all(isinstance(action, say.Tell) for action in driver.withdraw(ONE))
    only(driver.feed(offered(TWO, 2000)), say.OrderCopy)


def test_a_peer_without_a_link_to_another_holder_takes_no_stage() -> None:
    driver = Handing()
    driver.feed(say.LinksReported(peer=THREE, links=frozenset({ONE})))
    driver.feed(offered(THREE))
    assert all(isinstance(action, say.Tell) for action in driver.withdraw(ONE))
    only(driver.feed(say.LinksReported(peer=THREE, links=frozenset({ONE, TWO}))), say.OrderCopy)


def test_who_wants_to_stay_after_all_and_who_leaves_at_once_are_not_waited_for() -> None:
    driver = Handing()
    driver.withdraw(ONE)
    driver.feed(offered(ONE))
    assert driver.sentence == ""
    assert driver.feed(offered(THREE)) == []
    driver.withdraw(ONE)
    driver.feed(say.PeerLeft(peer=ONE, reason="left"))
    assert driver.state == "waiting"


def newcomer_leaves(driver: Handing, plan: Plan) -> list[say.Action]:
    return driver.feed(say.PeerLeft(peer=THREE, reason="left"))


def newcomer_fails(driver: Handing, plan: Plan) -> list[say.Action]:
    return driver.lost(THREE, plan.generation, 0)


def newcomer_is_slow(driver: Handing, plan: Plan) -> list[say.Action]:
    return driver.later(CATCHING_UP * (LOADING_SECONDS + 1.0))


@pytest.mark.parametrize("harm", [newcomer_leaves, newcomer_fails, newcomer_is_slow])
def test_a_newcomer_that_does_not_get_there_is_given_up_and_another_one_tried(
    harm: Callable[[Handing, Plan], list[say.Action]],
) -> None:
    driver = Handing(THREE)
    plan = driver.proposed(ONE)
    actions = harm(driver, plan)
    assert say.Withdraw(plan=plan) in actions
    assert (driver.state, driver.machine.plan) == ("training", driver.plan)
    driver.applied(0)
    copy = only(driver.feed(offered(FOUR)), say.OrderCopy)
    make = only(driver.feed(copied(copy.plan, copy.stage, 2)), say.MakeSuccessor)
    assert [taker.peer for taker in make.takers] == [FOUR]
    again = driver.answered(make)
    assert (again.generation, again.step, again.stages[0].incarnation) == (3, 2, 2)
    driver.ready(plan)  # too late
    assert driver.machine.plan is driver.plan


@pytest.mark.parametrize("harm", [newcomer_leaves, newcomer_fails])
def test_once_the_record_may_have_been_made_a_lost_newcomer_takes_all_back_to_a_line(
    harm: Callable[[Handing, Plan], list[say.Action]],
) -> None:
    driver = Handing(THREE)
    plan = driver.switching(ONE)
    assert say.Withdraw(plan=plan) in harm(driver, plan)
    assert driver.state == "waiting"
    assert driver.sentence.endswith("it goes on from step 0")
    assert driver.taken(plan, 1) == []


@pytest.mark.parametrize("leaver", [ONE, TWO])
def test_a_holder_that_is_lost_meanwhile_ends_the_hand_over(leaver: PeerId) -> None:
    driver = Handing(THREE)
    plan = driver.proposed(ONE)
    actions = driver.feed(say.PeerLeft(peer=leaver, reason="left"))
    assert actions[0] == say.Withdraw(plan=plan)
    assert driver.state == "waiting"


def test_at_a_boundary_where_codecs_change_another_copy_is_wanted() -> None:
    driver = Handing(THREE)
    order = only(driver.withdraw(ONE), say.OrderCopy)
    later = (CodecSpec("int8"),) * 2
    assert driver.feed(copied(order.plan, 0, later=later)) == [order]
    with pytest.raises(RemoteProtocolError, match="not one codec for each stage"):
        driver.feed(copied(order.plan, 0, codecs=later[:1]))
    only(driver.feed(copied(order.plan, 0, codecs=later, later=later)), say.MakeSuccessor)


def test_an_answer_to_a_hand_over_before_counts_for_nothing() -> None:
    driver = Handing(THREE)
    order = only(driver.withdraw(ONE), say.OrderCopy)
    make = only(driver.feed(copied(order.plan, 0)), say.MakeSuccessor)
    driver.feed(say.SuccessorImpossible(copy=make.copy, sentence="no peer can run it"))
    assert driver.sentence == "no peer can run it"
    assert driver.feed(succeeded(make)) == []
    only(driver.feed(offered(FOUR)), say.OrderCopy)


def test_only_holders_speak_for_stages_of_a_proposed_plan_and_only_the_recorder_for_its_beginning() -> None:
    driver = Handing(THREE)
    plan = driver.proposed(ONE)
    for peer, stage in ((ONE, 0), (TWO, 0), (THREE, 1), (THREE, 9)):
        with pytest.raises(RemoteProtocolError, match="does not hold stage"):
            driver.load(peer, plan.generation, stage)
    driver.ready(plan)
    with pytest.raises(RemoteProtocolError, match="does not settle steps"):
        driver.taken(plan, 1, peer=ONE)


def test_a_job_that_keeps_no_lines_moves_no_stage() -> None:
    assert Handing(THREE, keeps_lines=False).withdraw(ONE) == []


def test_holders_hear_what_they_need_not_keep_any_more() -> None:
    driver = Handing()
    assert driver.feed(say.LineKept(line=BEGINNING)) == [say.CommitLine(plan=driver.plan, step=Step(0))]


def test_nothing_goes_that_whoever_catches_up_may_still_ask_for() -> None:
    driver = Handing(THREE)
    order = only(driver.withdraw(ONE), say.OrderCopy)
    assert driver.feed(say.LineKept(line=Line(step=Step(5)))) == []
    plan = driver.answered(only(driver.feed(copied(order.plan, 0)), say.MakeSuccessor))
    driver.ready(plan)
    assert driver.feed(say.LineKept(line=Line(step=Step(7)))) == []
    driver.applied(0)
    driver.taken(plan, 1)
    driver.applied(1)
    assert driver.feed(say.LineKept(line=Line(step=Step(9)))) == [say.CommitLine(plan=plan, step=Step(9))]
