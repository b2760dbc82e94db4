"""Two sessions joined by byte pipes: any chunking, cancellation, refusal, loss of either end at any byte."""

from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from swarm.errors import LinkLostError
from swarm.protocol import session_flight, session_receiving, session_sending
from swarm.protocol.session import Session
from swarm.protocol.session_budget import Budget, LinkMemory
from swarm.protocol.session_events import (
    Abandon,
    Answered,
    Close,
    Deliver,
    Down,
    Ended,
    Event,
    Judge,
    Lost,
    Offered,
    Pass,
    Post,
    Probe,
    Refuse,
    Sent,
    Tick,
    Unwanted,
    Up,
    Welcome,
    Withdraw,
    Writable,
    Write,
)
from swarm.protocol.session_memory import PayloadMemory
from swarm.protocol.session_traffic import MEMORY_SECONDS
from swarm.testing.hellos import plain_accept, plain_hello
from swarm.testing.sessions import pour
from swarm.wire.frames import CloseCode
from swarm.wire.messages.base import Message
from swarm.wire.messages.blocks import BlockReply, BlockRequest
from swarm.wire.messages.pipeline import BoundaryTensor, Fence

DIGEST = "a" * 52
CREDIT, WINDOW, STREAMS, HELD, FRAME, FLIGHT = 1000, 3000, 3, 9000, 300, 900
BEGUN_MEMORY, GRANTED_MEMORY, CONTROL_MEMORY = 6006, 9000, 1_000_000
"""Room for all that may begin, and for a large payload at a time: others wait for memory."""
"""Small limits, so that short runs reach all of them."""


def message_of(key: int) -> Message:
    """Of two kinds, one of which yields its turns to the other."""
    if key % 3:
        return BlockReply(request=key)
    fence = Fence(job="j" * 52, step=0, phase="train", source=0, target=1, sender=1, receiver=1)
    return BoundaryTensor(fence=fence, micro_batch=0, tensor=key, direction="forward", header=None)


def key_of(message: Any) -> int:
    """The number that :func:`message_of` was given."""
    found = message.tensor if isinstance(message, BoundaryTensor) else message.request
    assert isinstance(found, int)
    return found


@dataclass
class Side:
    """One end, and all that it was told to do and did."""

    session: Session
    wire: bytearray = field(default_factory=bytearray)
    """What it has written and the other end has not read."""
    posted: dict[int, tuple[Any, bytes]] = field(default_factory=dict)
    withdrawn: set[int] = field(default_factory=set)
    sent: list[int] = field(default_factory=list)
    unwanted: set[int] = field(default_factory=set)
    delivered: list[tuple[Any, bytes]] = field(default_factory=list)
    abandoned: set[int] = field(default_factory=set)
    answers: int = 0
    probes: int = 0
    ups: int = 0
    downs: list[Down] = field(default_factory=list)
    ended: int = 0


def small_memory() -> LinkMemory:
    return LinkMemory(
        begun=Budget(BEGUN_MEMORY).share(),
        granted=Budget(GRANTED_MEMORY).share(),
        control=Budget(CONTROL_MEMORY).share(),
        mappings=PayloadMemory(spare=2**20),
    )


class TwoSessions(RuleBasedStateMachine):
    """The machine. Requests are numbered, so that each arrival can be traced to its posting."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.next_key = 0
        self.patches = [
            mock.patch.object(session_sending, "INITIAL_CREDIT_BYTES", CREDIT),
            mock.patch.object(session_receiving, "INITIAL_CREDIT_BYTES", CREDIT),
            mock.patch.object(session_receiving, "RECEIVE_WINDOW_BYTES", WINDOW),
            mock.patch.object(session_receiving, "SCRATCH_BYTES", 100),
            mock.patch.object(session_receiving, "FIRST_BYTES", 500),
            mock.patch.object(session_sending, "STREAMS_AT_ONCE", STREAMS),
            mock.patch.object(session_receiving, "MAX_OPEN_STREAMS", STREAMS),
            mock.patch.object(session_receiving, "MAPPED_BYTES", CREDIT),
            mock.patch.object(session_flight, "BEGINNING_BYTES", FLIGHT),
            mock.patch.object(session_flight, "LEAST_BYTES", FLIGHT),
            mock.patch.object(session_flight, "MIN_DATA_FRAME_BYTES", 0),
            *(
                mock.patch.object(m, "MAX_RECEIVE_BUFFER_BYTES", HELD)
                for m in (session_sending, session_receiving)
            ),
        ]
        for patch in self.patches:
            patch.start()
        self.sides = [
            Side(Session(plain_hello(), dialed=dialed, now=self.now, memory=small_memory()))
            for dialed in (True, False)
        ]
        for side in self.sides:
            side.session._traffic.up_meter.frame_bytes = FRAME
            side.session._traffic.up_meter._learn = lambda sample: None  # keep frames small
        self.refuse_next = False

    def teardown(self) -> None:
        for patch in self.patches:
            patch.stop()

    # Carrying out.

    def feed(self, side: Side, event: Event) -> bool:
        session = side.session
        deadline, wanted = session.deadline, session.wants_to_write
        actions = session.handle(event, now=self.now)
        if actions and (isinstance(event, Pass) or isinstance(actions[0], Deliver)):
            assert session.deadline >= deadline, "a message was passed on, and something is due sooner"
            assert wanted or not session.wants_to_write, "a message was passed on, and there is more to write"
        for action in actions:
            self.perform(side, action)
        return bool(actions)

    def perform(self, side: Side, action: Any) -> None:
        assert not side.ended, f"{action} after the end"
        match action:
            case Write():
                side.wire += action.head
                side.wire += action.body
            case Judge():
                pass
            case Up():
                side.ups += 1
            case Offered():
                if self.refuse_next:
                    self.refuse_next = False
                    side.abandoned.add(key_of(action.message))
                    self.feed(side, Abandon(action.stream, "not wanted"))
            case Deliver():
                side.delivered.append((action.message, bytes(action.payload)))
            case Sent():
                side.sent.append(action.key)
            case Unwanted():
                assert action.sentence == "not wanted"
                side.unwanted.add(action.key)
            case Answered():
                side.answers += 1
            case Down():
                side.downs.append(action)
            case Ended():
                side.ended += 1

    def other(self, side: Side) -> Side:
        return self.sides[1] if side is self.sides[0] else self.sides[0]

    def write(self, side: Side, unsent: int = 0) -> bool:
        before = len(side.wire)
        wanted = side.session.wants_to_write
        self.feed(side, Writable(unsent))
        wrote = len(side.wire) > before
        assert wrote or not wanted or side.ended, "wants_to_write, and writes nothing"
        return wrote

    def read(self, side: Side, count: int, piece: int) -> bool:
        """Carry up to ``count`` bytes of the other end's wire to ``side``, in pieces of at most ``piece``."""
        wire = self.other(side).wire
        data = wire[:count]
        del wire[:count]
        for event in pour(data, side.session, piece=piece):
            self.feed(side, event)
        return bool(data)

    def is_up(self, side: Side) -> bool:
        return side.ups == 1 and not side.downs

    # Rules.

    @initialize(accepting=st.sampled_from([(0, 1), (0, 1), (1, 0), (1, 0), (0,), ()]))
    def greet(self, accepting: tuple[int, ...]) -> None:
        for side in self.sides:
            self.write(side)
        for side in self.sides:
            self.read(side, 10_000, 7)
            assert side.session.greeting.peer_hello == plain_hello()
        for index in accepting:
            self.feed(self.sides[index], Welcome(plain_accept()))
        if len(accepting) == 2:
            for side in self.sides:
                self.write(side)
            for side in self.sides:
                self.read(side, 10_000, 1)
                assert self.is_up(side)

    @rule(index=st.integers(0, 1))
    def accept(self, index: int) -> None:
        side = self.sides[index]
        if not side.session.greeting.accepted and side.session.state == "greeting":
            self.feed(side, Welcome(plain_accept()))

    @rule(index=st.integers(0, 1), dice=st.integers(0, 3))
    def refuse(self, index: int, dice: int) -> None:
        side = self.sides[index]
        if dice == 3 and not side.session.greeting.accepted and side.session.state == "greeting":
            self.feed(side, Refuse("busy", "no room"))

    @rule(index=st.integers(0, 1), unsent=st.integers(0, 1000))
    def let_write(self, index: int, unsent: int) -> None:
        self.write(self.sides[index], unsent)

    @rule(index=st.integers(0, 1), count=st.integers(1, 2000), piece=st.sampled_from([1, 5, 12, 100, 5000]))
    def let_read(self, index: int, count: int, piece: int) -> None:
        self.read(self.sides[index], count, piece)

    @rule(
        index=st.integers(0, 1),
        sizes=st.lists(st.sampled_from([0, 0, 1, 299, 300, 1000, 1001, 2500, 4000]), min_size=1, max_size=5),
        at_once=st.booleans(),
    )
    def post(self, index: int, sizes: list[int], at_once: bool) -> None:
        for size in sizes:
            self.post_one(self.sides[index], size, at_once)

    def post_one(self, side: Side, size: int, at_once: bool) -> None:
        self.next_key += 1
        key = self.next_key
        payload = key.to_bytes(4, "big") * (size // 4 + 1)
        message = message_of(key) if size else BlockRequest(request=key, digest=DIGEST)
        if at_once and not size and self.feed(side, Pass(message)):
            assert self.is_up(side)
            side.posted[key] = (message, b"")
            side.sent.append(key)
            return
        event = Post(key, message, memoryview(payload[:size]))
        if self.is_up(side):
            self.feed(side, event)
            side.posted[key] = (message, payload[:size])
        else:
            with pytest.raises(LinkLostError):
                self.feed(side, event)

    @rule(index=st.integers(0, 1), pick=st.integers(0, 100))
    def withdraw(self, index: int, pick: int) -> None:
        side = self.sides[index]
        open_keys = [k for k in side.posted if k not in side.sent and k not in side.unwanted]
        payloads = [k for k in open_keys if side.posted[k][1]]
        if payloads:
            key = payloads[pick % len(payloads)]
            side.withdrawn.add(key)
            self.feed(side, Withdraw(key))

    @rule(dice=st.integers(0, 2))
    def refuse_next_payload(self, dice: int) -> None:
        self.refuse_next = dice == 2

    @rule(rounds=st.integers(1, 6), piece=st.sampled_from([12, 64, 700]), index=st.integers(0, 1))
    def flow(self, rounds: int, piece: int, index: int) -> None:
        side = self.sides[index]
        for _ in range(rounds):
            self.write(side)
            self.read(self.other(side), 400, piece)

    @rule(index=st.integers(0, 1))
    def probe(self, index: int) -> None:
        side = self.sides[index]
        if self.is_up(side):
            side.probes += 1
        self.feed(side, Probe())

    @rule(seconds=st.sampled_from([0.01, 0.5, 2.9]), dice=st.integers(0, 3))
    def pass_time(self, seconds: float, dice: int) -> None:
        self.now += seconds if dice == 3 else 0.001
        for side in self.sides:
            self.feed(side, Tick())

    @rule(index=st.integers(0, 1), dice=st.integers(0, 12))
    def close(self, index: int, dice: int) -> None:
        if dice == 12:
            self.feed(self.sides[index], Close(CloseCode.LEAVING, "enough"))

    @rule(index=st.integers(0, 1), dice=st.integers(0, 12))
    def lose(self, index: int, dice: int) -> None:
        """The channel breaks: what is under way is gone, and both ends are told."""
        if dice == 12:
            for side in self.sides:
                side.wire.clear()
                self.feed(side, Lost("was cut"))

    @precondition(lambda self: all(self.is_up(side) for side in self.sides))
    @rule(piece=st.sampled_from([3, 64, 10_000]))
    def settle(self, piece: int) -> None:
        """With nothing in the way everything that is wanted arrives, and the books are empty."""
        moving = True
        while moving:
            moving = False
            for side in self.sides:
                moving |= self.write(side)
                moving |= self.read(side, 5000, piece)
            if not moving and any(side.session._traffic.inbox.waits_for_memory for side in self.sides):
                self.now += MEMORY_SECONDS
                for side in self.sides:
                    self.feed(side, Tick())
                moving = True
        for side in self.sides:
            other = self.other(side)
            gone = side.withdrawn | other.abandoned
            arrived = {key_of(message) for message, _ in other.delivered}
            assert arrived >= side.posted.keys() - gone
            assert set(side.sent) | side.withdrawn | side.unwanted == side.posted.keys()
            assert side.session.statistics().sending == side.session.statistics().receiving == 0
            assert side.answers >= (side.probes > 0)

    # What always holds.

    @invariant()
    def books_are_right(self) -> None:
        for side in self.sides:
            side.session.check()
            assert side.ups <= 1
            assert len(side.downs) <= 1
            assert side.ended <= len(side.downs)
            assert bool(side.downs) == (side.session.state in {"closing", "ended"})
            assert str(side.session)

    @invariant()
    def what_arrives_was_sent(self) -> None:
        for side in self.sides:
            other = self.other(side)
            numbers = [key_of(message) for message, _ in other.delivered]
            assert len(numbers) == len(set(numbers)), "delivered twice"
            for message, payload in other.delivered:
                assert side.posted[key_of(message)] == (message, payload)
                assert key_of(message) not in other.abandoned
            small = [n for n in numbers if not side.posted[n][1]]
            assert small == sorted(small), "messages without payload arrive in order"
            for number in side.unwanted:
                assert number in other.abandoned

    @invariant()
    def never_more_is_held_than_allowed(self) -> None:
        for side in self.sides:
            assert side.session._traffic.inbox.held <= HELD


TestTwoSessions = TwoSessions.TestCase
TestTwoSessions.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)
