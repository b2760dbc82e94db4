"""What should move and does not: a stream without bytes, a peer that reads nothing."""

from swarm.protocol.session_events import Down, Post, Tick
from swarm.protocol.session_traffic import LOOK_SECONDS, UNREAD_LOOKS
from swarm.testing.sessions import SessionEnd, SessionPair
from swarm.wire import frames
from swarm.wire.limits import MAX_DATA_FRAME_BYTES, MIN_DATA_FRAME_BYTES
from swarm.wire.messages.blocks import BlockMissing, BlockReply
from swarm.wire.messages.registry import encode_message

ALIVE = frames.pong_frame(bytes(8))
"""A sign of life that moves nothing."""
BEGUN = frames.open_frame(1, BlockReply.NUMBER, encode_message(BlockReply(request=1)), 1000)


def risen() -> SessionPair:
    pair = SessionPair()
    pair.rise(0.0)
    return pair


def seconds_until_it_ends(end: SessionEnd, sign: bytes, *, writing: bool, most: float = 600.0) -> float:
    """How long ``end`` stays up while ``sign`` comes every second."""
    now = 0.0
    while end.session.state == "up" and now < most:
        now += 1.0
        end.receive(sign, now)
        end.feed(Tick(), now)
        if writing:
            end.write_all(now)
    return now


def sentence_of(end: SessionEnd) -> str:
    (down,) = [action.end for action in end.actions if isinstance(action, Down)]
    return str(down)


def test_a_payload_that_stands_still_ends_the_link_after_two_minutes() -> None:
    pair = risen()
    pair.far.receive(BEGUN + frames.data_header(1, 10) + bytes(10), 0.0)
    assert 120.0 <= seconds_until_it_ends(pair.far, ALIVE, writing=True) <= 130.0
    assert sentence_of(pair.far) == "was hung up on: stream 1 stood still"


def test_a_payload_that_comes_slowly_is_let_come() -> None:
    pair = risen()
    pair.far.receive(BEGUN, 0.0)
    one_byte = frames.data_header(1, 1) + b"x"
    assert seconds_until_it_ends(pair.far, one_byte, writing=True) == 600.0


def test_a_refused_payload_that_is_never_given_up_ends_the_link() -> None:
    pair = risen()
    pair.far.receive(BEGUN, 0.0)
    pair.far.session._traffic.inbox.abandon(1)
    assert 120.0 <= seconds_until_it_ends(pair.far, ALIVE, writing=True) <= 130.0


def test_a_peer_that_talks_and_never_reads_is_given_up() -> None:
    pair = risen()
    pair.far.feed(Post(1, BlockMissing(request=1), memoryview(b"")), 0.0)
    passed = seconds_until_it_ends(pair.far, ALIVE, writing=False)
    assert UNREAD_LOOKS * LOOK_SECONDS <= passed <= (UNREAD_LOOKS + 1) * LOOK_SECONDS
    assert sentence_of(pair.far) == "was hung up on: nothing was read for 30 s"


def test_a_machine_that_slept_finds_fault_with_nobody() -> None:
    pair = risen()
    pair.far.receive(BEGUN, 0.0)
    pair.far.feed(Post(1, BlockMissing(request=1), memoryview(b"")), 0.0)
    pair.far.receive(ALIVE, 50_000.0)
    pair.far.feed(Tick(), 50_000.0)
    pair.far.feed(Tick(), 50_000.1)
    assert pair.far.session.state == "up"


def test_frames_are_no_longer_than_a_limit_asks_but_never_shorter_than_frames_are() -> None:
    pair = risen()
    session = pair.near.session
    session._traffic.up_meter.frame_bytes = MAX_DATA_FRAME_BYTES
    session._traffic.flight.limit = 2**40
    assert session.bulk_frame_bytes == MAX_DATA_FRAME_BYTES
    session.limit_frames(20_000)
    assert session.bulk_frame_bytes == 20_000
    session.limit_frames(1)
    assert session.bulk_frame_bytes == MIN_DATA_FRAME_BYTES
