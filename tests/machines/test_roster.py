"""Rosters of two peers that call each other at any moment, lose links unheard, restart and run twice."""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from swarm.ids import PeerId, peer_id
from swarm.protocol.roster import (
    PROBE_SECONDS,
    Admit,
    AskForLife,
    Called,
    Dismiss,
    Elapsed,
    Event,
    Gone,
    Introduced,
    LinkKey,
    Replace,
    Risen,
    Roster,
    SignOfLife,
    TurnAway,
)

LOW, HIGH = sorted(peer_id(bytes([n]) * 32) for n in (1, 2))


@dataclass
class End:
    """What one peer knows of one link."""

    owner: "Peer"
    key: LinkKey
    dialed: bool
    inbox: deque[tuple[str, Any]] = field(default_factory=deque)
    accepted: bool = False
    was_accepted: bool = False
    gone: bool = False
    code: str = ""

    @property
    def up(self) -> bool:
        return self.accepted and self.was_accepted and not self.gone


@dataclass
class Peer:
    """A run of a program."""

    name: PeerId
    boot: bytes
    ends: dict[LinkKey, End] = field(default_factory=dict)
    alive: bool = True

    def __post_init__(self) -> None:
        self.roster = Roster(self.name, boot=self.boot)

    def up(self) -> list[LinkKey]:
        return [end.key for end in self.ends.values() if end.up]


class TwoRosters(RuleBasedStateMachine):
    """Links are pairs of ends with queues; what a session would do is done by ``act`` and ``take``."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.keys = 0
        self.boots = 0
        self.peers = {name: self.start(name) for name in (LOW, HIGH)}
        self.others: list[Peer] = []
        self.far: dict[int, End] = {}

    def start(self, name: PeerId) -> Peer:
        self.boots += 1
        return Peer(name, self.boots.to_bytes(8, "big"))

    def tell(self, peer: Peer, event: Event) -> None:
        for action in peer.roster.handle(event, now=self.now):
            self.act(peer, action)
        peer.roster.check()

    def act(self, peer: Peer, action: Any) -> None:
        end = peer.ends[action.link]
        match action:
            case Admit():
                end.accepted = True
                self.send(end, "accept")
                self.maybe_rise(end)
            case TurnAway():
                self.send(end, "refuse", action.code)
                self.end(end, action.code)
            case AskForLife():
                if end.up:
                    self.send(end, "ping")
            case Replace():
                self.send(end, "close", "duplicate")
                self.end(end, "duplicate")

    def send(self, end: End, what: str, detail: Any = None) -> None:
        self.far[id(end)].inbox.append((what, detail))

    def end(self, end: End, code: str) -> None:
        if not end.gone:
            end.gone, end.code = True, code
            self.tell(end.owner, Gone(end.key))

    def maybe_rise(self, end: End) -> None:
        if end.up:
            self.tell(end.owner, Risen(end.key))

    def take(self, end: End) -> None:
        """The next thing that the far end said."""
        what, detail = end.inbox.popleft()
        if end.gone or not end.owner.alive:
            return
        other = self.far[id(end)].owner
        match what:
            case "hello":
                self.tell(
                    end.owner,
                    Introduced(link=end.key, peer=other.name, boot=detail, dialed=end.dialed, invite="one"),
                )
            case "accept":
                end.was_accepted = True
                self.maybe_rise(end)
            case "refuse" | "close":
                self.end(end, detail)
            case "ping":
                self.send(end, "pong")
            case "pong":
                self.tell(end.owner, SignOfLife(end.key))

    def call(self, caller: Peer, called: Peer) -> None:
        ends = []
        for owner, dialed in ((caller, True), (called, False)):
            self.keys += 1
            ends.append(End(owner, LinkKey(self.keys), dialed))
            owner.ends[ends[-1].key] = ends[-1]
        self.far[id(ends[0])], self.far[id(ends[1])] = ends[1], ends[0]
        self.tell(caller, Called(ends[0].key, called.name))
        for end in ends:
            self.send(end, "hello", end.owner.boot)

    def busy(self) -> list[End]:
        return [end for peer in self.all() for end in peer.ends.values() if end.inbox]

    def all(self) -> list[Peer]:
        return [*self.peers.values(), *self.others]

    @rule(low=st.booleans())
    def dial(self, low: bool) -> None:
        caller, called = (self.peers[LOW], self.peers[HIGH]) if low else (self.peers[HIGH], self.peers[LOW])
        if not caller.up():
            self.call(caller, called)

    @rule(low=st.booleans())
    def dial_without_knowing_who_is_there(self, low: bool) -> None:
        caller, called = (self.peers[LOW], self.peers[HIGH]) if low else (self.peers[HIGH], self.peers[LOW])
        self.call(caller, called)

    @rule(pick=st.integers(0, 1000), count=st.integers(1, 4))
    def deliver(self, pick: int, count: int) -> None:
        for _ in range(count):
            busy = self.busy()
            if busy:
                self.take(busy[pick % len(busy)])

    @rule(low=st.booleans(), dice=st.integers(0, 5))
    def lose_unheard(self, low: bool, dice: int) -> None:
        """One end of a link is gone, and the other is not told: a router forgot it, a laptop slept."""
        peer = self.peers[LOW if low else HIGH]
        living = [end for end in peer.ends.values() if not end.gone]
        if living and dice == 5:
            end = living[-1]
            end.inbox.clear()
            self.far[id(end)].inbox.clear()
            self.end(end, "lost")

    @rule(low=st.booleans(), dice=st.integers(0, 5))
    def restart(self, low: bool, dice: int) -> None:
        """The program dies without a word and starts again."""
        if dice == 5:
            name = LOW if low else HIGH
            self.peers[name].alive = False
            self.others.append(self.peers[name])
            self.peers[name] = self.start(name)

    @rule(seconds=st.sampled_from([0.1, 1.0, PROBE_SECONDS]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for peer in self.all():
            if peer.alive:
                self.tell(peer, Elapsed())

    @rule()
    def settle(self) -> None:
        """All that was said arrives and all deadlines pass; then a call gives both ends the same one link."""
        self.quieten()
        low, high = self.peers[LOW], self.peers[HIGH]
        if not high.up():
            self.call(high, low)
            self.quieten()
        assert len(low.up()) == len(high.up()) == 1
        (key,) = low.up()
        assert self.far[id(low.ends[key])] is high.ends[high.up()[0]]
        for peer in (low, high):
            assert all(end.gone or end.up for end in peer.ends.values()), "a link that never settles"

    def quieten(self) -> None:
        for _ in range(3):
            while self.busy():
                self.take(self.busy()[0])
            self.now += PROBE_SECONDS
            for peer in self.all():
                if peer.alive:
                    self.tell(peer, Elapsed())
            self.give_up_on_the_dead()

    def give_up_on_the_dead(self) -> None:
        """What heartbeats and hello deadlines do: a link whose far end is gone does not live for ever."""
        for peer in self.all():
            for end in list(peer.ends.values()):
                far = self.far[id(end)]
                if not end.gone and (far.gone or not far.owner.alive) and not end.inbox:
                    self.end(end, "silent")

    @invariant()
    def one_link_is_up_at_each_end(self) -> None:
        for peer in self.all():
            assert len(peer.up()) <= 1
            assert str(peer.roster)


TestTwoRosters = TwoRosters.TestCase
TestTwoRosters.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def names(actions: list[Any]) -> list[str]:
    return [type(action).__name__ for action in actions]


def hello(
    key: int, peer: PeerId, *, boot: bytes = b"theboot1", dialed: bool = False, invite: str = "one"
) -> Introduced:
    return Introduced(link=LinkKey(key), peer=peer, boot=boot, dialed=dialed, invite=invite)


def test_of_two_simultaneous_calls_the_one_of_the_lower_peer_wins() -> None:
    low, high = Roster(LOW, boot=b"low-boot"), Roster(HIGH, boot=b"highboot")
    low.handle(Called(LinkKey(1), HIGH), now=0.0)
    high.handle(Called(LinkKey(2), LOW), now=0.0)
    (refused,) = low.handle(hello(2, HIGH), now=0.0)
    assert isinstance(refused, TurnAway)
    assert refused.code == "duplicate"
    assert low.handle(hello(1, HIGH, dialed=True), now=0.0) == [Admit(LinkKey(1))]
    assert high.handle(hello(1, LOW), now=0.0) == [Admit(LinkKey(1))]


def test_a_second_copy_is_refused_while_the_first_answers() -> None:
    roster = Roster(HIGH, boot=b"highboot")
    roster.handle(hello(1, LOW), now=0.0)
    roster.handle(Risen(LinkKey(1)), now=0.0)
    assert names(roster.handle(hello(2, LOW, boot=b"theboot2"), now=1.0)) == ["AskForLife"]
    assert roster.deadline == 1.0 + PROBE_SECONDS
    (refused,) = roster.handle(SignOfLife(LinkKey(1)), now=1.1)
    assert isinstance(refused, TurnAway)
    assert "another program with this identity is running" in refused.sentence
    assert roster.deadline == float("inf")


def test_a_restarted_program_takes_the_place_of_the_run_that_does_not_answer() -> None:
    roster = Roster(LOW, boot=b"low-boot")
    roster.handle(hello(1, HIGH), now=0.0)
    roster.handle(Risen(LinkKey(1)), now=0.0)
    roster.handle(hello(2, HIGH, boot=b"theboot2"), now=1.0)
    assert roster.handle(Elapsed(), now=1.0 + PROBE_SECONDS - 0.1) == []
    actions = roster.handle(Elapsed(), now=1.0 + PROBE_SECONDS)
    assert names(actions) == ["Replace", "Admit"]
    assert actions[1] == Admit(LinkKey(2))


def test_the_end_of_the_old_link_admits_the_new_one_at_once() -> None:
    roster = Roster(LOW, boot=b"low-boot")
    roster.handle(hello(1, HIGH), now=0.0)
    roster.handle(Risen(LinkKey(1)), now=0.0)
    roster.handle(hello(2, HIGH), now=1.0)
    assert roster.handle(Gone(LinkKey(1)), now=1.5) == [Admit(LinkKey(2))]


def test_this_peers_own_address_and_its_own_second_copy_are_told_apart() -> None:
    roster = Roster(LOW, boot=b"low-boot")
    (own,) = roster.handle(hello(1, LOW, boot=b"low-boot", dialed=True), now=0.0)
    (copy,) = roster.handle(hello(2, LOW, boot=b"low-copy", dialed=True), now=0.0)
    assert isinstance(own, TurnAway)
    assert isinstance(copy, TurnAway)
    assert own.sentence == "the address is this peer's own"
    assert "another program with this identity is running" in copy.sentence


def test_no_more_links_than_the_limit() -> None:
    roster = Roster(LOW, boot=b"low-boot", limit=2)
    for key in (1, 2):
        assert names(roster.handle(hello(key, peer_id(bytes([40 + key]) * 32)), now=0.0)) == ["Admit"]
    (refused,) = roster.handle(hello(3, peer_id(bytes([50]) * 32)), now=0.0)
    assert isinstance(refused, TurnAway)
    assert refused.code == "busy"
    assert "2 links" in refused.sentence


def stranger(number: int) -> PeerId:
    return peer_id(number.to_bytes(32, "big"))


def test_when_full_the_invite_with_the_most_links_makes_room() -> None:
    roster = Roster(LOW, boot=b"low-boot", limit=6)
    assert roster.handle(hello(1, stranger(1), invite="flood"), now=0.0) == [Admit(LinkKey(1))]
    roster.handle(hello(2, stranger(2), invite="friend"), now=0.0)
    for key in range(3, 7):
        roster.handle(hello(key, stranger(key), invite="flood"), now=0.0)
    dismissed = []
    for key in range(7, 20):
        match roster.handle(hello(key, stranger(key), invite=f"invite {key}"), now=0.0):
            case [Dismiss(link=link), Admit(link=admitted)]:
                assert admitted == key
                dismissed.append(link)
            case [TurnAway(code="busy")]:
                pass
        roster.check()
    assert dismissed == [6, 5, 4, 3], "the newest first, and the last one stays"
    refused = roster.handle(hello(30, stranger(30), invite="flood"), now=0.0)
    assert names(refused) == ["TurnAway"]


def test_when_full_a_link_that_this_peer_made_itself_stays() -> None:
    roster = Roster(LOW, boot=b"low-boot", limit=2)
    for key in (1, 2):
        roster.handle(Called(LinkKey(key), stranger(key)), now=0.0)
        roster.handle(hello(key, stranger(key), dialed=True, invite="flood"), now=0.0)
    assert names(roster.handle(hello(3, stranger(3), invite="other"), now=0.0)) == ["TurnAway"]


def test_a_link_that_comes_up_has_given_a_sign_of_life() -> None:
    roster = Roster(LOW, boot=b"low-boot")
    roster.handle(hello(1, HIGH), now=0.0)
    assert names(roster.handle(hello(2, HIGH), now=0.1)) == ["AskForLife"]
    (refused,) = roster.handle(Risen(LinkKey(1)), now=0.2)
    assert isinstance(refused, TurnAway)
    assert refused.link == LinkKey(2)
    assert "a link between us already" in refused.sentence
