"""A session whose other side loses, repeats, swaps and replays frames, or goes at any byte."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from swarm.protocol.session_budget import NodeMemory
from swarm.protocol.session_events import (
    Abandon,
    Deliver,
    Down,
    Lost,
    Offered,
    Post,
    Sent,
    Unwanted,
    Withdraw,
)
from swarm.testing.sessions import SessionEnd, SessionPair, widen
from swarm.wire.frames import HEADER_BYTES, decode_header
from swarm.wire.messages.blocks import BlockMissing, BlockReply

NOW = 100.0
SIZES = (0, 1, 700, 5000, 70_000)


def risen(memory: NodeMemory) -> SessionPair:
    """Two sessions that are up; ``memory`` is that of the node at the far end."""
    pair = SessionPair(now=NOW, memory=memory)
    pair.rise(NOW)
    for end in (pair.near, pair.far):
        widen(end.session)
    return pair


def post(end: SessionEnd, key: int, size: int) -> None:
    message = BlockReply(request=key) if size else BlockMissing(request=key)
    end.feed(Post(key, message, memoryview(bytes([key % 251]) * size)), NOW)


def held(memory: NodeMemory) -> int:
    return memory._begun.held + memory._granted.held + memory._control.held


def frames_of(wire: bytearray) -> list[bytes]:
    """Cut what was written into its frames."""
    found = []
    while wire:
        size = HEADER_BYTES + decode_header(bytes(wire[:HEADER_BYTES])).length
        found.append(bytes(wire[:size]))
        del wire[:size]
    return found


class TamperedSession(RuleBasedStateMachine):
    """``near`` sends what it should; what ``far`` gets of it is tampered with, as a member could."""

    def __init__(self) -> None:
        super().__init__()
        self.key = 0
        self.posted: dict[int, int] = {}
        self.frames: list[bytes] = []
        """Written, and not given to the far end yet."""
        self.given: list[bytes] = []
        self.tampered = False
        self.refuse = False

    @initialize()
    def rise(self) -> None:
        self.memory = NodeMemory()
        self.pair = risen(self.memory)

    @property
    def is_over(self) -> bool:
        return "ended" in {end.session.state for end in (self.pair.near, self.pair.far)}

    def give(self, frame: bytes) -> None:
        if not self.is_over:
            self.given.append(frame)
            for action in self.pair.far.receive(frame, NOW):
                if isinstance(action, Offered) and self.refuse and self.pair.far.session.state == "up":
                    self.pair.far.feed(Abandon(action.stream, "not wanted"), NOW)

    @rule(size=st.sampled_from(SIZES), times=st.integers(1, 3))
    def post(self, size: int, times: int) -> None:
        for _ in range(times):
            if self.pair.near.session.state == "up":
                self.key += 1
                self.posted[self.key] = size
                post(self.pair.near, self.key, size)

    @rule(key=st.integers(1, 20))
    def withdraw(self, key: int) -> None:
        self.pair.near.feed(Withdraw(key), NOW)

    @rule(refuse=st.booleans())
    def change_mind(self, refuse: bool) -> None:
        self.refuse = refuse

    @rule(writes=st.integers(1, 6))
    def write(self, writes: int) -> None:
        for _ in range(writes):
            self.pair.near.write(NOW)
        self.frames += frames_of(self.pair.near.wire)

    @rule(count=st.integers(1, 8))
    def forward(self, count: int) -> None:
        for _ in range(min(count, len(self.frames))):
            self.give(self.frames.pop(0))

    @rule()
    def answer(self) -> None:
        self.pair.far.write_all(NOW)
        wire, self.pair.far.wire = self.pair.far.wire, bytearray()
        self.pair.near.receive(wire, NOW)

    @rule(
        dice=st.integers(0, 3),
        what=st.sampled_from(["repeat", "swap", "replay", "lose"]),
        pick=st.integers(0, 99),
    )
    def tamper(self, dice: int, what: str, pick: int) -> None:
        if dice or not self.frames:
            return
        self.tampered = True
        match what:
            case "repeat":
                self.frames.insert(0, self.frames[0])
            case "swap":
                self.frames[:2] = reversed(self.frames[:2])
            case "replay" if self.given:
                self.frames.insert(0, self.given[pick % len(self.given)])
            case _:
                del self.frames[0]

    @rule(dice=st.integers(0, 9), pick=st.integers(0, 10**6))
    def go(self, dice: int, pick: int) -> None:
        """The other side goes in the middle of a frame."""
        if dice == 9 and self.frames:
            self.tampered = True
            self.give(self.frames[0][: pick % len(self.frames[0])])
            for end in (self.pair.near, self.pair.far):
                end.feed(Lost("was cut"), NOW)

    @invariant()
    def what_is_delivered_is_whole(self) -> None:
        if not hasattr(self, "pair"):
            return
        delivered = [a for a in self.pair.far.actions if isinstance(a, Deliver)]
        for action in delivered:
            request: Any = action.message
            assert len(action.payload) == self.posted[request.request]
            if not self.tampered:
                assert set(action.payload) <= {request.request % 251}
        if not self.tampered:
            assert len({a.message.request for a in delivered}) == len(delivered)  # type: ignore[attr-defined]

    @invariant()
    def who_tampers_ends_the_link_and_no_more(self) -> None:
        if not hasattr(self, "pair"):
            return
        for end in (self.pair.near, self.pair.far):
            end.session.check()
            downs = [action for action in end.actions if isinstance(action, Down)]
            assert len(downs) <= 1
            assert self.tampered or not downs
        if self.pair.far.session.state == "ended":
            assert held(self.memory) == 0


TestTamperedSession = TamperedSession.TestCase
TestTamperedSession.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_peer_that_goes_at_any_byte_leaves_nothing() -> None:
    """Small messages and payloads one way, and one that is on its way back."""

    def story(pair: SessionPair) -> bytes:
        for key, size in enumerate((0, 300, 0, 200, 250), start=1):
            post(pair.near, key, size)
        pair.near.write_all(NOW)
        return bytes(pair.near.wire)

    length = len(story(risen(NodeMemory())))
    for count in range(length + 1):
        memory = NodeMemory()
        pair = risen(memory)
        stream = story(pair)
        pair.far.receive(stream[:count], NOW)
        post(pair.far, 9, 100)
        pair.far.write(NOW)
        for end in (pair.near, pair.far):
            end.feed(Lost("was cut"), NOW)
            assert end.session.state == "ended"
            assert [type(action) for action in end.actions].count(Down) == 1
        assert held(memory) == 0
        settled = [a.key for a in pair.near.actions if isinstance(a, Sent | Unwanted)]
        assert len(settled) == len(set(settled))
