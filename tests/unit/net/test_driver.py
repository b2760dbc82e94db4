"""The driver, on a channel that does what the test says."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random

import pytest

from swarm.clock import Clock
from swarm.errors import LinkLostError, RemoteError, RemoteRefusalError
from swarm.net.address import Address
from swarm.net.driver import ERRAND_BYTES, PIECE_BYTES, TURN_BYTES, Driver
from swarm.net.pacing import ON_THE_WIRE, Caps
from swarm.protocol.session import Session
from swarm.protocol.session_events import (
    Abandon,
    Action,
    Close,
    Deliver,
    Down,
    Judge,
    Post,
    Sent,
    Up,
    Welcome,
)
from swarm.protocol.session_receiving import FRAME_BYTES
from swarm.testing.clock import ManualClock
from swarm.testing.hellos import plain_accept, plain_hello
from swarm.testing.loop import run_on_manual_clock
from swarm.testing.sessions import widen
from swarm.wire import frames
from swarm.wire.frames import Buffer, CloseCode
from swarm.wire.messages.blocks import BlockMissing, BlockReply
from swarm.wire.messages.coordination import StageFailed
from swarm.wire.messages.registry import encode_message

UNLIMITED = Caps()
EMPTY = memoryview(b"")
IDLE = frames.credit_frame(1, 1)
"""Causes nothing once stream 1 is at its end."""
RISING = frames.message_frame(plain_hello()) + frames.message_frame(plain_accept())


class Script:
    """A byte channel: what comes is in ``incoming``, what was sent in ``sent``."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        self.dialed = True
        self.incoming = bytearray()
        self.endless = b""
        """Comes again and again, once ``incoming`` is empty."""
        self.sent = bytearray()
        self.sends = 0
        self.reads = 0
        self.ended: RemoteError | None = None
        self.writable = self.unread = True
        self.unsent = 0
        self.limits: list[int] = []
        self.closed: list[float] = []
        self.aborted = False

    remote = Address("192.0.2.1", 1)
    certificate = b""

    def receive_into(self, buffer: memoryview) -> int:
        if self.endless and len(self.incoming) < len(buffer):
            self.incoming += self.endless * (1 + len(buffer) // len(self.endless))
        self.reads += 1
        size = min(len(buffer), len(self.incoming))
        buffer[:size] = self.incoming[:size]
        del self.incoming[:size]
        return size

    def send(self, head: Buffer, body: Buffer) -> None:
        self.sends += 1
        self.sent += head
        self.sent += body

    def limit_unread(self, limit: int) -> None:
        self.unread = limit

    def limit_unsent(self, limit: int) -> None:
        self.limits.append(limit)

    async def aclose(self, seconds: float) -> None:
        self.closed.append(seconds)

    def abort(self) -> None:
        self.aborted = True

    def come(self, data: bytes) -> None:
        """Bytes arrive."""
        self.incoming += data
        self.wake()


class Stage:
    """A driver that runs, and what it performed."""

    def __init__(self, clock: Clock, caps: Caps = UNLIMITED) -> None:
        self.channel = Script()
        self.session = Session(plain_hello(), dialed=True, now=clock.elapsed())
        widen(self.session)  # nobody answers its pings
        self.actions: list[Action] = []
        self.fault: Exception | None = None
        self.driver = Driver(self.channel, self.session, clock=clock, perform=self.perform, caps=caps)

    def perform(self, action: Action) -> None:
        self.actions.append(action)
        if isinstance(action, Judge):
            self.driver.feed(Welcome(plain_accept()))
        if isinstance(action, Deliver) and self.fault is not None:
            raise self.fault


class Ticking:
    """A clock that goes on while a program runs, and finds that the loop's timers are a little early."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._random = Random(1)
        self._at = self._later = 0.0

    def elapsed(self) -> float:
        now = self._clock.elapsed()
        if now != self._at:
            self._at, self._later = now, 0.0
        self._later += self._random.uniform(0.0, 0.001)
        return now - 0.001 + self._later

    def wall(self) -> float:
        return self._clock.wall()


Scene = Callable[[Stage, ManualClock, "asyncio.Task[None]"], Coroutine[None, None, None]]


def play(scene: Scene) -> None:
    async def main(clock: ManualClock) -> None:
        stage = Stage(clock)
        async with asyncio.timeout(10_000.0), asyncio.TaskGroup() as group:
            running = group.create_task(stage.driver.run())
            stage.channel.come(RISING)
            await asyncio.sleep(0.1)
            assert stage.actions[:2] == [Judge(plain_hello()), Up(plain_accept())]
            await scene(stage, clock, running)
            running.cancel()

    run_on_manual_clock(main)


def test_it_says_hello_accepts_and_pings() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        kinds = []
        rest = bytes(stage.channel.sent)
        while rest:
            header = frames.decode_header(rest[:12])
            kinds.append(header.kind.name)
            rest = rest[12 + header.length :]
        assert kinds == ["MESSAGE", "MESSAGE", "PING"]

    play(scene)


def test_it_waits_while_the_channel_takes_nothing() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        stage.channel.writable = False
        stage.channel.sent.clear()
        stage.driver.feed(Post(1, BlockMissing(request=1), memoryview(b"")))
        await asyncio.sleep(1.0)
        assert not stage.channel.sent
        stage.channel.writable = True
        stage.channel.wake()
        assert frames.message_frame(BlockMissing(request=1)) in bytes(stage.channel.sent)

    play(scene)


def test_a_lone_message_is_written_when_it_is_posted_and_those_with_it_together() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        messages = [BlockMissing(request=number) for number in range(4)]
        first, *others = map(frames.message_frame, messages)
        stage.channel.come(frames.pong_frame(bytes(8)))
        stage.channel.sent.clear()
        assert [stage.driver.pass_on(message) for message in messages] == [True, False, False, False]
        for key, message in enumerate(messages[1:], start=2):
            stage.driver.feed(Post(key, message, EMPTY))
        assert stage.channel.sent == first
        sends = stage.channel.sends
        await asyncio.sleep(0)
        assert stage.channel.sent == first + b"".join(others)
        assert stage.channel.sends == sends + 1
        assert stage.actions[-3:] == [Sent(2), Sent(3), Sent(4)]

    play(scene)


def test_an_answer_is_written_where_the_question_is_handled() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        written = []

        def answer(action: Action) -> None:
            if isinstance(action, Deliver):
                assert stage.driver.pass_on(action.message)
                written.append(bytes(stage.channel.sent))

        stage.driver._perform = answer
        stage.channel.sent.clear()
        questions = [frames.message_frame(BlockMissing(request=number)) for number in range(2)]
        for question in questions:
            stage.channel.come(question)
        assert written == [questions[0], b"".join(questions)]

    play(scene)


@pytest.mark.parametrize("obstacle", ["the channel takes nothing", "a cap counts", "bytes wait"])
def test_a_message_is_not_written_at_once_where_something_is_in_its_way(obstacle: str) -> None:
    async def main(clock: ManualClock) -> None:
        stage = Stage(clock, Caps.of(up=10_000_000, down=0) if obstacle == "a cap counts" else UNLIMITED)
        async with asyncio.timeout(10.0), asyncio.TaskGroup() as group:
            running = group.create_task(stage.driver.run())
            stage.channel.come(RISING)
            await asyncio.sleep(0.1)
            stage.channel.come(frames.pong_frame(bytes(8)))
            if obstacle == "the channel takes nothing":
                stage.channel.writable = False
            if obstacle == "bytes wait":
                stage.driver.feed(Post(1, BlockMissing(request=1), EMPTY))
            stage.channel.sent.clear()
            assert not stage.driver.pass_on(BlockMissing(request=2))
            stage.driver.feed(Post(2, BlockMissing(request=2), EMPTY))
            assert not stage.channel.sent
            stage.channel.writable = True
            await asyncio.sleep(0)
            assert stage.channel.sent.endswith(frames.message_frame(BlockMissing(request=2)))
            running.cancel()

    run_on_manual_clock(main)


def test_deadlines_are_kept_while_only_messages_come() -> None:
    """They bring none nearer, so none is looked at; round trips are measured all the same."""

    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        stage.channel.sent.clear()
        for number in range(40):
            stage.channel.come(frames.message_frame(BlockMissing(request=number)))
            await asyncio.sleep(1.0)
        size = len(frames.ping_frame(bytes(8)))
        pings = [bytes(stage.channel.sent[at : at + 12]) for at in range(0, len(stage.channel.sent), size)]
        assert [frames.decode_header(ping).kind for ping in pings] == 2 * [frames.PING]
        await asyncio.sleep(9.1)
        assert [type(action) for action in stage.actions[-1:]] == [Down]

    play(scene)


def test_it_gives_others_their_turn_while_bytes_never_end() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        unwanted = frames.open_frame(2, BlockReply.NUMBER, encode_message(BlockReply(request=1)), 2**24)
        stage.channel.come(unwanted)
        stage.driver.feed(Abandon(2, "no"))
        stage.channel.endless = frames.data_header(2, 250_000) + bytes(250_000)
        stage.session._traffic.inbox._streams[2].granted = 2**24
        stage.channel.wake()
        for _turn in range(2):
            before = stage.session.statistics().bytes_received
            for _wake in range(5):
                stage.channel.wake()  # as a loop does that reads a socket several times in one iteration
            assert stage.session.statistics().bytes_received == before
            await asyncio.sleep(0)
            moved = stage.session.statistics().bytes_received - before
            assert 0.75 * TURN_BYTES < moved < TURN_BYTES  # in pieces of 16 KiB
        stage.channel.endless = b""
        stage.channel.incoming.clear()

    play(scene)


async def let_a_stream_be(stage: Stage) -> None:
    """Stream 1 is opened and at its end."""
    stage.driver.feed(Post(1, BlockReply(request=1), memoryview(b"x")))
    await asyncio.sleep(0.1)
    assert stage.actions[-1] == Sent(1)


def test_a_slice_that_is_little_used_costs_no_turn_of_its_own() -> None:
    """What is left of one lasts over iterations of the loop, and is bounded all the same."""

    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        driver = stage.driver
        await let_a_stream_be(stage)
        used = driver._spent
        stage.channel.come(IDLE)
        assert driver._spent == used + len(IDLE) + PIECE_BYTES
        assert driver._next is None
        while driver._next is None:
            stage.channel.come(IDLE)
        assert TURN_BYTES // 2 < driver._spent < TURN_BYTES
        await asyncio.sleep(0)
        assert (driver._spent, driver._next) == (0, None)

    play(scene)


def test_it_gives_others_their_turn_while_messages_never_end() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        stage.channel.endless = frames.message_frame(
            StageFailed(job="a" * 52, generation=1, stage=0, sentence="x" * 1000)
        )
        cost = len(stage.channel.endless) + 2 * PIECE_BYTES + ERRAND_BYTES  # a header and a body
        messages = -(-TURN_BYTES // cost)
        delivered = []
        for _turn in range(4):
            for _wake in range(5):
                stage.channel.wake()
            delivered.append(sum(isinstance(action, Deliver) for action in stage.actions))
            await asyncio.sleep(0)
        first = delivered[0]
        assert messages // 2 < first <= messages  # the greeting used some of that slice
        assert delivered == [first + turn * messages for turn in range(4)]
        stage.channel.endless = b""

    play(scene)


def test_it_gives_others_their_turn_while_frames_come_that_cause_nothing() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        await let_a_stream_be(stage)
        stage.channel.endless = IDLE
        for _turn in range(3):
            before = stage.session.statistics().bytes_received
            stage.channel.wake()
            moved = stage.session.statistics().bytes_received - before
            most = len(stage.channel.endless) * TURN_BYTES // PIECE_BYTES
            assert most // 2 < moved <= most + FRAME_BYTES
            stage.channel.endless = b""
            await asyncio.sleep(0.1)
            assert not stage.channel.incoming
            stage.channel.endless = IDLE
        stage.channel.endless = b""

    play(scene)


def test_what_it_posts_itself_costs_nothing_of_its_slice() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        for key in range(1, 10 * TURN_BYTES // ERRAND_BYTES):
            stage.driver.feed(Post(key, BlockMissing(request=key), memoryview(b"")))
        stage.channel.come(frames.message_frame(BlockMissing(request=1)))
        assert isinstance(stage.actions[2], Deliver)

    play(scene)


def test_small_messages_are_read_together() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        messages = [BlockMissing(request=number) for number in range(20)]
        reads = stage.channel.reads
        stage.channel.come(b"".join(map(frames.message_frame, messages)))
        assert [action.message for action in stage.actions if isinstance(action, Deliver)] == messages
        assert stage.channel.reads == reads + 2  # all of them, and then nothing

    play(scene)


def test_it_gives_others_their_turn_while_it_sends() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        for key in range(1, 21):
            stage.driver.feed(Post(key, BlockReply(request=key), memoryview(bytes(900_000))))
        before = len(stage.channel.sent)
        await asyncio.sleep(0)
        assert TURN_BYTES <= len(stage.channel.sent) - before < 2 * TURN_BYTES
        await asyncio.sleep(1.0)
        assert len(stage.channel.sent) - before > 20 * 900_000

    play(scene)


def test_the_system_is_told_how_much_it_may_hold() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        stage.driver.feed(Post(1, BlockReply(request=1), memoryview(bytes(900_000))))
        await asyncio.sleep(0.1)
        assert stage.channel.limits
        assert stage.channel.limits[-1] == stage.session.unsent_limit

    play(scene)


def test_a_silent_peer_is_asked_for_a_sign_of_life_when_its_heartbeat_is_due() -> None:
    async def scene(stage: Stage, clock: ManualClock, _: "asyncio.Task[None]") -> None:
        stage.channel.sent.clear()
        await asyncio.sleep(3.1)
        assert bytes(stage.channel.sent[:12]) == frames.ping_frame(bytes(8))[:12]
        assert len(stage.channel.sent) == len(frames.ping_frame(bytes(8)))

    play(scene)


def test_time_passes_without_bytes() -> None:
    async def scene(stage: Stage, clock: ManualClock, running: "asyncio.Task[None]") -> None:
        start = clock.elapsed()
        await running
        assert clock.elapsed() - start == pytest.approx(8.7, abs=0.2)
        (down,) = [action for action in stage.actions if isinstance(action, Down)]
        assert down.end.code == "silent"
        assert stage.channel.closed == [0.0]
        assert stage.channel.aborted

    play(scene)


@pytest.mark.parametrize(
    ("error", "code"),
    [(LinkLostError("was lost"), "lost"), (RemoteRefusalError("wrong-swarm", "refused"), "wrong-swarm")],
)
def test_what_ended_the_channel_ends_the_session_after_the_last_bytes(error: RemoteError, code: str) -> None:
    async def scene(stage: Stage, clock: ManualClock, running: "asyncio.Task[None]") -> None:
        stage.channel.ended = error
        stage.channel.come(frames.message_frame(BlockMissing(request=1)))
        await running
        assert isinstance(stage.actions[-2], Deliver)
        assert isinstance(stage.actions[-1], Down)
        assert stage.actions[-1].end.code == code

    play(scene)


def test_our_own_last_words_get_two_seconds() -> None:
    async def scene(stage: Stage, clock: ManualClock, running: "asyncio.Task[None]") -> None:
        stage.driver.feed(Close(CloseCode.LEAVING, "bye"))
        await running
        assert stage.channel.sent.endswith(b"bye")
        assert stage.channel.closed == [2.0]

    play(scene)


def test_what_a_service_raises_comes_out_of_run_once() -> None:
    async def main(clock: ManualClock) -> None:
        stage = Stage(clock)
        stage.fault = ZeroDivisionError("a bug")
        stage.channel.incoming += RISING + frames.message_frame(BlockMissing(request=1)) * 2
        with pytest.raises(ZeroDivisionError, match="a bug"):
            await stage.driver.run()
        assert len([action for action in stage.actions if isinstance(action, Deliver)]) == 1
        assert stage.channel.aborted
        stage.channel.wake()

    run_on_manual_clock(main)


def test_a_cap_that_lets_go_while_the_driver_works_is_not_missed() -> None:
    rate, seconds = 200_000, 6.0

    async def main(clock: ManualClock) -> None:
        stage = Stage(Ticking(clock), Caps.of(up=rate, down=0))
        async with asyncio.TaskGroup() as group:
            running = group.create_task(stage.driver.run())
            stage.channel.come(RISING)
            await asyncio.sleep(0.1)
            for key in range(1, 3):
                stage.driver.feed(Post(key, BlockReply(request=key), memoryview(bytes(900_000))))
            before = stage.session.statistics().bytes_sent
            await asyncio.sleep(seconds)
            sent = stage.session.statistics().bytes_sent - before
            assert sent == pytest.approx(rate / ON_THE_WIRE * seconds, rel=0.05)
            running.cancel()

    run_on_manual_clock(main)
