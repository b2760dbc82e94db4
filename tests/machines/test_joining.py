"""Joining: addresses found, answering, silent and refusing in any order, while links come and go."""

from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from swarm.protocol.joining import (
    CALLS_AT_ONCE,
    GRACE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_ADDRESSES,
    VERDICT_SECONDS,
    Action,
    Alone,
    Answer,
    Answered,
    Call,
    Conclude,
    Elapsed,
    Event,
    Found,
    JoiningMachine,
    Linked,
    Source,
)

SOURCES: tuple[Source, ...] = ("invite", "neighbour", "referral", "remembered")


def silence(address: str, code: str = "") -> Answer:
    sentence = f"{address} refused: go away" if code else f"{address} did not answer within 5 s"
    return Answer(address=address, family="IPv4", sentence=sentence, seconds=5.0, code=code)


class Node:
    """A machine under a clock that the test moves; calls last until the test answers them."""

    def __init__(self, *, listens: float = 0.0) -> None:
        self.now = 0.0
        self.machine = JoiningMachine(now=0.0, spread=Random(7).uniform, listens=listens)
        self.calling: list[str] = []
        self.verdicts: list[Conclude] = []

    def feed(self, event: Event) -> list[Action]:
        actions = self.machine.handle(event, now=self.now)
        self.machine.check()
        self.calling += [action.address for action in actions if isinstance(action, Call)]
        self.verdicts += [action for action in actions if isinstance(action, Conclude)]
        return actions

    def find(self, *addresses: str, source: Source = "invite") -> None:
        for address in addresses:
            self.feed(Found(address=address, source=source))

    def answer(self, address: str, *answers: Answer) -> None:
        self.calling.remove(address)
        self.feed(Answered(address=address, answers=answers))

    def run_to(self, moment: float) -> None:
        """Let time pass; whoever is called stays silent, and says so at once."""
        while self.machine.deadline <= moment:
            self.now = max(self.now, self.machine.deadline)
            self.feed(Elapsed())
            for address in tuple(self.calling):
                self.answer(address, silence(address))
        self.now = moment


class Joins(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.node = Node(listens=3.0)
        self.links = 0
        self.effort = 0.0

    @rule(number=st.integers(0, 90), source=st.sampled_from(SOURCES))
    def find(self, number: int, source: Source) -> None:
        self.node.find(f"192.0.2.{number}:7423", source=source)

    @rule(data=st.data(), code=st.sampled_from(["", "busy", "revoked"]), opens=st.booleans())
    def answer(self, data: Any, code: str, opens: bool) -> None:
        if self.node.calling:
            address = data.draw(st.sampled_from(sorted(self.node.calling)))
            if opens:
                self.links += 1
                self.node.feed(Linked())
            self.node.answer(address, *(() if opens else (silence(address, code),)))

    @rule()
    def somebody_calls(self) -> None:
        self.links += 1
        self.node.feed(Linked())

    @rule()
    def a_link_ends(self) -> None:
        if self.links:
            self.links -= 1
            if not self.links:
                self.node.feed(Alone())
                self.effort = self.node.now

    @rule(seconds=st.floats(0.1, 40.0))
    def time_passes(self, seconds: float) -> None:
        self.node.now += seconds
        self.node.feed(Elapsed())

    @invariant()
    def no_address_is_called_twice_at_once(self) -> None:
        assert len(set(self.node.calling)) == len(self.node.calling) <= CALLS_AT_ONCE

    @invariant()
    def the_state_says_whether_there_is_a_link_and_a_verdict_is_in_time(self) -> None:
        state = self.node.machine.state
        assert (state == "in") == (self.links > 0)
        if state == "calling":
            assert self.node.now < self.effort + GRACE_SECONDS + VERDICT_SECONDS
            assert self.node.machine.deadline < float("inf")


TestJoins = Joins.TestCase
TestJoins.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_all_addresses_are_called_at_once_and_again_after_pauses_that_grow() -> None:
    node = Node()
    node.find("192.0.2.1:1", "192.0.2.2:1")
    assert node.calling == ["192.0.2.1:1", "192.0.2.2:1"]
    attempt = node.machine.statistics().attempts[0]
    moments = []
    for _ in range(9):
        node.answer("192.0.2.1:1", silence("192.0.2.1:1"))
        node.now = attempt.due
        node.feed(Elapsed())
        moments.append(node.now)
    pauses = [later - earlier for earlier, later in zip([0.0, *moments], moments, strict=False)]
    assert all(0.75 * 2**n <= pause <= 1.25 * 2**n for n, pause in enumerate(pauses[:5]))
    assert all(0.75 * LONGEST_PAUSE_SECONDS <= pause <= 1.25 * LONGEST_PAUSE_SECONDS for pause in pauses[5:])


def test_the_verdict_comes_once_everybody_has_answered_and_calls_go_on() -> None:
    node = Node()
    node.find("192.0.2.1:1", "192.0.2.2:1")
    node.answer("192.0.2.1:1", silence("192.0.2.1:1"))
    assert not node.verdicts
    node.answer("192.0.2.2:1", silence("192.0.2.2:1"))
    (verdict,) = node.verdicts
    assert verdict.sentence.startswith("no bootstrap node answers: 192.0.2.1:1 did not answer within 5 s")
    assert verdict.sentence.endswith("or ask for an invite with other addresses")
    assert node.machine.statistics().waiting == verdict.sentence
    node.run_to(600.0)
    assert len(node.verdicts) == 1
    assert all(attempt.calls > 10 for attempt in node.machine.statistics().attempts)


def test_a_call_that_never_ends_does_not_hold_up_the_verdict() -> None:
    node = Node()
    node.find("192.0.2.1:1")
    node.now = VERDICT_SECONDS
    node.feed(Elapsed())
    assert "192.0.2.1:1 has not answered yet" in node.verdicts[0].sentence


def test_without_an_address_neighbours_have_a_while_to_answer() -> None:
    node = Node(listens=3.0)
    node.feed(Elapsed())
    assert node.machine.deadline == 3.0
    assert node.machine.statistics().waiting == "a peer of the swarm in this network"
    node.now = 3.0
    node.feed(Elapsed())
    assert "no peer of the swarm answers in this network" in node.verdicts[0].sentence


def test_without_an_address_or_neighbours_the_verdict_is_at_once() -> None:
    node = Node()
    node.feed(Elapsed())
    assert node.verdicts[0].sentence.startswith("the invite has no address in it: run swarm bootstrap")


def test_a_verdict_tells_of_three_addresses_and_how_many_more_there_are() -> None:
    node = Node()
    addresses = [f"192.0.2.{number}:7423" for number in range(1, 9)]
    node.find(*addresses)
    for address in addresses:
        node.answer(address, silence(address))
    text = node.verdicts[0].sentence
    assert text.count("did not answer") == 3
    assert "; and 5 more addresses: check" in text


def test_a_verdict_tells_each_refusal_once() -> None:
    node = Node()
    codes = {"192.0.2.1:1": "revoked", "192.0.2.2:1": "revoked", "192.0.2.3:1": "busy", "192.0.2.4:1": ""}
    node.find(*codes)
    for address, code in codes.items():
        node.answer(address, silence(address, code))
    text = node.verdicts[0].sentence
    assert [address for address in codes if address in text] == ["192.0.2.1:1", "192.0.2.3:1", "192.0.2.4:1"]


@pytest.mark.parametrize(
    ("source", "code", "final"),
    [
        ("invite", "revoked", "revoked"),
        ("remembered", "invite-expired", "invite-expired"),
        ("invite", "busy", ""),
        ("neighbour", "revoked", ""),
        ("referral", "wrong-swarm", ""),
    ],
)
def test_only_a_lasting_refusal_by_whom_the_invite_names_is_final(
    source: Source, code: str, final: str
) -> None:
    node = Node()
    node.find("192.0.2.1:1", source=source)
    node.answer("192.0.2.1:1", silence("192.0.2.1:1", code))
    assert node.verdicts[0].code == final
    assert "go away" in node.verdicts[0].sentence


def test_a_name_is_told_with_each_number_that_it_has() -> None:
    node = Node()
    node.find("swarm.example.org:7423")
    v6 = Answer(
        address="[2001:db8::7]:7423", family="IPv6", sentence="[2001:db8::7]:7423 is far", seconds=0.1
    )
    node.answer("swarm.example.org:7423", silence("198.51.100.7:7423"), v6)
    told = "swarm.example.org:7423: 198.51.100.7:7423 did not answer within 5 s; [2001:db8::7]"
    assert told in node.verdicts[0].sentence


def test_who_loses_all_links_calls_everybody_again_after_a_moment() -> None:
    node = Node()
    node.find("192.0.2.1:1")
    node.feed(Linked())
    node.answer("192.0.2.1:1")
    node.now = 500.0
    assert node.machine.deadline == float("inf")
    node.feed(Alone())
    assert node.calling == []
    assert node.machine.deadline == 500.0 + GRACE_SECONDS
    node.run_to(500.0 + GRACE_SECONDS)
    assert len(node.verdicts) == 1


def test_new_neighbours_are_called_once_by_who_has_links_and_others_are_not() -> None:
    node = Node()
    node.feed(Linked())
    node.find("192.0.2.1:1", source="neighbour")
    node.find("192.0.2.2:1", source="referral")
    assert node.calling == ["192.0.2.1:1"]
    node.answer("192.0.2.1:1", silence("192.0.2.1:1"))
    assert node.machine.deadline == float("inf")


def test_referrals_without_end_leave_room_for_neighbours_and_for_the_invite() -> None:
    node = Node()
    node.feed(Linked())
    for number in range(3 * MOST_ADDRESSES):
        node.find(f"192.0.2.1:{number + 1}", source="referral")
    node.find("10.0.0.7:1", source="neighbour")
    node.find("198.51.100.1:1", source="invite")
    assert node.calling == ["10.0.0.7:1"]
    kept = {attempt.address for attempt in node.machine.statistics().attempts}
    assert {"10.0.0.7:1", "198.51.100.1:1"} <= kept
    assert len(kept) == MOST_ADDRESSES
