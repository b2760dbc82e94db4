"""What a session says, when, and what it does not put up with. Any order of events: tests/machines."""

import pytest

from swarm.errors import LinkLostError, LocalError
from swarm.protocol import session_receiving, session_sending
from swarm.protocol.session_events import (
    Abandon,
    Answered,
    Close,
    Deliver,
    Down,
    Ended,
    Judge,
    Lost,
    Offered,
    Post,
    Probe,
    Received,
    Refuse,
    Sent,
    Tick,
    Unwanted,
    Up,
    Vain,
    Welcome,
    Withdraw,
)
from swarm.protocol.session_memory import PayloadMemory
from swarm.testing.hellos import plain_accept, plain_hello
from swarm.testing.sessions import SessionEnd, SessionPair, widen
from swarm.wire import frames
from swarm.wire.frames import CloseCode, Kind
from swarm.wire.limits import INITIAL_CREDIT_BYTES, MAX_HELLO_BYTES, MAX_UNSENT_PONGS, MIB
from swarm.wire.messages.blocks import BlockMissing, BlockReply
from swarm.wire.messages.coordination import StageFailed
from swarm.wire.messages.registry import encode_message

REPLY = encode_message(BlockReply(request=1))


def risen(now: float = 0.0) -> SessionPair:
    pair = SessionPair(now=now)
    pair.rise(now)
    for end in (pair.near, pair.far):
        widen(end.session)
    return pair


def payload_post(key: int, size: int) -> Post:
    return Post(key, BlockReply(request=key), memoryview(bytes([key % 256]) * size))


def kinds(data: bytes | bytearray) -> list[Kind]:
    """The kinds of the frames in ``data``."""
    found = []
    rest = bytes(data)
    while rest:
        header = frames.decode_header(rest[:12])
        found.append(header.kind)
        rest = rest[12 + header.length :]
    return found


def down_of(end: SessionEnd) -> str:
    downs = [action.end for action in end.actions if isinstance(action, Down)]
    assert len(downs) == 1
    return str(downs[0])


# Greeting.


def test_it_is_up_when_both_have_accepted_and_not_before() -> None:
    pair = SessionPair()
    pair.carry(0.0)
    assert pair.near.actions == [Judge(plain_hello())]
    pair.near.feed(Welcome(plain_accept()), 0.0)
    pair.carry(0.0)
    assert pair.near.session.state == pair.far.session.state == "greeting"
    with pytest.raises(LinkLostError, match="not up yet"):
        pair.near.feed(payload_post(1, 5), 0.0)
    pair.far.feed(Welcome(plain_accept()), 0.0)
    pair.carry(0.0)
    assert Up(plain_accept()) in pair.near.actions
    assert Up(plain_accept()) in pair.far.actions


def test_a_refusal_reaches_the_other_side_with_its_sentence() -> None:
    pair = SessionPair()
    pair.carry(0.0)
    pair.near.feed(Refuse("busy", "no room\x07 here"), 0.0)
    pair.carry(0.0)
    assert down_of(pair.far) == "refused this peer: no room  here"
    assert down_of(pair.near) == "was refused, and told: no room  here"
    assert pair.far.actions[-1] == Ended()
    assert pair.near.actions[-1] == Ended()


def test_without_a_hello_it_says_so_after_ten_seconds_and_ends() -> None:
    end = SessionEnd(dialed=False, now=0.0)
    end.write_all(0.0)
    end.wire.clear()
    assert end.session.deadline == 10.0
    assert end.feed(Tick(), 9.9) == []
    end.feed(Tick(), 10.0)
    end.write_all(10.0)
    assert kinds(end.wire) == [Kind.CLOSE]
    assert down_of(end) == "was hung up on: no hello within 10 s"
    assert end.session.state == "ended"


def test_last_words_that_nobody_takes_end_after_two_seconds() -> None:
    pair = risen()
    pair.near.feed(Close(CloseCode.LEAVING, "bye"), 5.0)
    assert pair.near.feed(Tick(), 6.9) == []
    assert pair.near.feed(Tick(), 7.0) == [Ended()]


def test_an_accept_for_another_version_breaks_the_protocol() -> None:
    end = SessionEnd(dialed=True, now=0.0)
    end.receive(frames.message_frame(plain_hello()), 0.0)
    end.receive(frames.message_frame(plain_accept(version=7)), 0.0)
    assert down_of(end) == "broke the protocol: protocol version 7 was not the one to agree on"


def test_the_lower_of_the_newest_versions_is_spoken() -> None:
    end = SessionEnd(dialed=True, now=0.0)
    end.receive(frames.message_frame(plain_hello(newest=9)), 0.0)
    assert end.session.greeting.version == plain_hello().newest


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (frames.message_frame(BlockMissing(request=1)), "before the hellos were accepted"),
        (frames.ping_frame(bytes(8)), "before the hellos were accepted"),
        (frames.open_frame(2, 41, REPLY, 5), "before the hellos were accepted"),
        (frames.message_frame(plain_accept()), "an accept out of turn"),
        (frames.message_frame(plain_hello()) * 2, "a second hello"),
        (b"\x01\0\0\x01\0\0\0\0" + (MAX_HELLO_BYTES + 1).to_bytes(4, "big"), "hello of 16385 bytes is over"),
        (frames.message_frame(plain_hello())[:12] + bytes(400), "does not parse"),
        (b"GET / HTTP/1.1\r\n", "no frame of kind 71"),
    ],
)
def test_strangers_who_break_the_protocol_are_told_and_dropped(data: bytes, complaint: str) -> None:
    end = SessionEnd(dialed=True, now=0.0)
    end.write_all(0.0)
    end.wire.clear()
    end.receive(data, 0.0)
    assert complaint in down_of(end)
    end.write_all(0.0)
    assert kinds(end.wire)[-1] is Kind.CLOSE
    assert complaint.encode() in end.wire


# Traffic.


def test_a_payload_is_delivered_in_the_memory_it_was_read_into() -> None:
    pair = risen()
    pair.near.feed(payload_post(7, 100_000), 0.0)
    pair.near.write(0.0)
    header_and_open = pair.near.wire[: 12 + 8 + len(REPLY) + 12]
    (offered,) = pair.far.receive(header_and_open, 0.0)
    assert offered == Offered(1, BlockReply(request=7), 100_000)
    memory = pair.far.session.inbox.reading.obj
    pair.near.wire = pair.near.wire[len(header_and_open) :]
    pair.carry(0.0)
    delivered = pair.far.actions[-1]
    assert isinstance(delivered, Deliver)
    assert delivered.payload.obj is memory
    assert bytes(delivered.payload) == b"\x07" * 100_000
    assert pair.near.actions == [Sent(7)]


def test_frames_that_are_read_together_are_taken_one_by_one() -> None:
    pair = risen()
    small = [BlockMissing(request=number) for number in range(3)]
    stream = frames.open_frame(1, BlockReply.NUMBER, REPLY, 200) + frames.data_header(1, 100) + bytes(100)
    pair.far.session.inbox.reading[: len(stream)] = stream
    assert pair.far.feed(Received(len(stream)), 0.0) == [Offered(1, BlockReply(request=1), 200)]
    assert pair.far.session.inbox.has_more
    pair.far.feed(Abandon(1, "not wanted"), 0.0)
    while pair.far.session.inbox.has_more:
        assert pair.far.feed(Received(0), 0.0) == []
    rest = frames.data_header(1, 100) + bytes(100) + b"".join(map(frames.message_frame, small))
    assert pair.far.receive(rest, 0.0) == [Deliver(message, memoryview(b"")) for message in small]


def test_a_read_of_nothing_is_a_bug_of_this_program_unless_there_is_more() -> None:
    pair = risen()
    for count in (0, -1, len(pair.far.session.inbox.reading) + 1):
        with pytest.raises(LocalError, match="bytes came where"):
            pair.far.feed(Received(count), 0.0)


def test_payloads_larger_than_the_first_credit_arrive_whole() -> None:
    pair = risen()
    data = bytes(range(256)) * (5 * MIB // 256)
    pair.near.feed(Post(1, BlockReply(request=1), memoryview(data)), 0.0)
    pair.near.write_all(0.0)
    assert pair.near.session.statistics().payload_sent == INITIAL_CREDIT_BYTES
    pair.carry(0.0)
    (delivered,) = [action for action in pair.far.actions if isinstance(action, Deliver)]
    assert delivered.payload == memoryview(data)


def test_payloads_take_turns_frame_by_frame() -> None:
    pair = risen()
    for key in (1, 2):
        pair.near.feed(payload_post(key, 3 * 64 * 1024), 0.0)
    streams = []
    while pair.near.session.wants_to_write:
        written = pair.near.write(0.0)
        streams.append(written[-1])
    assert streams == [1, 2, 1, 2, 1, 2]


def test_control_overtakes_bulk() -> None:
    pair = risen()
    pair.near.feed(payload_post(1, 500_000), 0.0)
    assert kinds(pair.near.write(0.0)) == [Kind.OPEN, Kind.DATA]
    pair.near.feed(Post(2, BlockMissing(request=2), memoryview(b"")), 0.0)
    pair.near.feed(Probe(), 0.0)
    assert kinds(pair.near.write(0.0)) == [Kind.MESSAGE, Kind.PING]
    assert kinds(pair.near.write(0.0)) == [Kind.DATA]


def test_no_more_streams_are_opened_than_the_receiver_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_sending, "STREAMS_AT_ONCE", 2)
    pair = risen()
    for key in (1, 2, 3):
        pair.near.feed(payload_post(key, 100_000), 0.0)
    written = [kinds(pair.near.write(0.0)) for _ in range(6)]
    assert [kind for frame in written for kind in frame].count(Kind.OPEN) == 3
    assert Kind.OPEN not in written[2]
    assert not pair.near.session.wants_to_write


def test_a_withdrawn_payload_is_cancelled_and_its_memory_given_back() -> None:
    pair = risen()
    pair.near.feed(payload_post(1, 300_000), 0.0)
    pair.near.write(0.0)
    pair.near.feed(Withdraw(1), 0.0)
    assert kinds(pair.near.write(0.0)) == [Kind.CANCEL]
    pair.carry(0.0)
    assert not any(isinstance(action, Deliver) for action in pair.far.actions)
    assert pair.far.session.statistics().receiving == 0
    assert not any(isinstance(action, Sent) for action in pair.near.actions)


def test_a_payload_withdrawn_before_its_first_byte_leaves_no_trace() -> None:
    pair = risen()
    for key in (1, 2, 3):
        pair.near.feed(payload_post(key, 100_000), 0.0)
    pair.near.write(0.0)
    pair.near.feed(Withdraw(2), 0.0)
    pair.carry(0.0)
    assert pair.near.actions == [Sent(1), Sent(3)]
    assert [a.message.request for a in pair.far.actions if isinstance(a, Deliver)] == [1, 3]


def test_an_unwanted_payload_stops_and_its_sender_hears_why() -> None:
    pair = risen()
    pair.near.feed(payload_post(1, 300_000), 0.0)
    pair.near.write(0.0)
    data, pair.near.wire = pair.near.wire, bytearray()
    (offered,) = pair.far.receive(data[:40], 0.0)
    assert isinstance(offered, Offered)
    pair.far.feed(Abandon(offered.stream, "I have it"), 0.0)
    pair.far.receive(data[40:], 0.0)
    pair.near.receive(pair.far.write(0.0), 0.0)
    pair.far.wire.clear()
    pair.carry(0.0)
    assert pair.near.actions == [Unwanted(1, "I have it")]
    assert pair.near.session.statistics().payload_sent == 64 * 1024
    assert pair.far.session.statistics().receiving == 0


def test_a_message_that_no_receiver_takes_is_a_bug_of_this_program() -> None:
    pair = risen()
    with pytest.raises(LocalError, match="may not have a payload of 5 bytes"):
        pair.near.feed(Post(1, BlockMissing(request=1), memoryview(b"12345")), 0.0)
    pair.near.feed(payload_post(2, 5), 0.0)
    with pytest.raises(LocalError, match="posted twice"):
        pair.near.feed(payload_post(2, 5), 0.0)


def test_a_sentence_that_would_move_a_cursor_breaks_the_protocol() -> None:
    pair = risen()
    failed = StageFailed(job="a" * 52, generation=1, stage=0, sentence="bye\x1b[1m")
    pair.near.feed(Post(1, failed, memoryview(b"")), 0.0)
    pair.carry(0.0)
    assert not [action for action in pair.far.actions if isinstance(action, Deliver)]
    assert pair.far.session.end is not None
    assert pair.far.session.end.code == "protocol"


# What breaks the protocol once it is up. ``far`` receives, so the peer's streams are odd.


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (frames.open_frame(2, 41, REPLY, 5), "stream 2 is opened out of turn"),
        (
            frames.open_frame(3, 41, REPLY, 5) + frames.open_frame(1, 41, REPLY, 5),
            "stream 1 is opened out of",
        ),
        (frames.data_header(1, 5), "stream 1 is not open"),
        (frames.open_frame(1, 41, REPLY, 5) + frames.data_header(1, 6), "longer than it was announced"),
        (frames.open_frame(1, 41, REPLY, 2**24 + 1), "outside the limits of BlockReply"),
        (frames.credit_frame(2, 5), "stream 2 was never opened"),
        (frames.credit_frame(1, 5), "stream 1 was never opened"),
        (frames.cancel_frame(1, frames.CancelCode.WITHDRAWN, ""), "stream 1 is not open"),
        (frames.message_frame(plain_accept()), "an accept out of turn"),
        (b"\x03\0\0\0\0\0\0\1\xff\xff\xff\xff", "outside the limits of its kind"),
        (frames.ping_frame(bytes(8)) * (MAX_UNSENT_PONGS + 1), "pings come faster than"),
    ],
)
def test_a_peer_that_breaks_the_protocol_is_told_and_dropped(data: bytes, complaint: str) -> None:
    pair = risen()
    pair.far.receive(data, 0.0)
    assert complaint in down_of(pair.far)
    pair.carry(0.0)
    assert "says that this peer broke the protocol: " in down_of(pair.near)
    assert complaint in down_of(pair.near)


def test_data_beyond_the_credit_is_refused_at_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_receiving, "INITIAL_CREDIT_BYTES", 1000)
    pair = risen()
    pair.far.receive(frames.open_frame(1, 41, REPLY, 5000) + frames.data_header(1, 1001), 0.0)
    assert "over its credit" in down_of(pair.far)


def test_too_many_open_streams_are_refused_at_the_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_receiving, "MAX_OPEN_STREAMS", 2)
    pair = risen()
    pair.far.receive(b"".join(frames.open_frame(stream, 41, REPLY, 5) for stream in (1, 3)), 0.0)
    pair.far.receive(frames.open_frame(5, 41, REPLY, 5)[:12], 0.0)
    assert "more than 2 streams" in down_of(pair.far)


def test_too_many_open_bytes_are_refused_before_memory_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_receiving, "MAX_RECEIVE_BUFFER_BYTES", 3000)
    pair = risen()
    pair.far.receive(frames.open_frame(1, 41, REPLY, 2000), 0.0)
    pair.far.receive(frames.open_frame(3, 41, REPLY, 1001), 0.0)
    assert "more than 3000 bytes of payloads are open" in down_of(pair.far)


def test_no_memory_is_taken_for_a_payload_of_which_nothing_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    monkeypatch.setattr(PayloadMemory, "allocate", lambda _, size: taken.append(size))
    pair = risen()
    pair.far.receive(frames.open_frame(1, 41, REPLY, 2**24), 0.0)
    assert taken == []


# Time.


def test_a_silent_peer_is_asked_twice_and_given_up_after_three_heartbeats() -> None:
    pair = risen(now=100.0)
    end = pair.near
    for moment in (103.0, 106.0):
        assert end.feed(Tick(), moment - 0.1) == []
        assert end.feed(Tick(), moment) == []
        assert kinds(end.write(moment)) == [Kind.PING]
    assert end.session.deadline == pytest.approx(108.7)
    end.feed(Tick(), 108.7)
    assert down_of(end) == "was silent for 8.7 s"
    assert end.actions[-1] == Ended()


def test_any_byte_is_a_sign_of_life() -> None:
    pair = risen(now=100.0)
    pair.near.feed(Tick(), 103.0)
    pair.near.feed(Tick(), 106.0)
    pair.near.receive(b"\x06", 106.9)
    assert pair.near.session.deadline == pytest.approx(109.9), "and counting begins anew"
    pair.near.feed(Tick(), 109.9)
    assert pair.near.session.state == "up"


def test_this_machines_own_sleep_does_not_make_the_other_dead() -> None:
    pair = risen(now=100.0)
    pair.near.feed(Tick(), 5000.0)
    assert pair.near.session.state == "up"
    pair.carry(5000.5)
    assert pair.near.session.statistics().last_heard == 5000.5


def test_the_heartbeat_adapts_to_the_round_trip() -> None:
    pair = risen(now=0.0)
    pair.near.feed(Probe(), 0.0)
    pair.near.write(0.0)
    pair.carry(4.0)
    assert pair.near.session.statistics().rtt > 0.0
    assert pair.near.session.deadline > 4.0 + 3.0


def test_the_first_round_trip_is_measured_at_once() -> None:
    pair = SessionPair()
    pair.carry(0.0)
    for end in (pair.near, pair.far):
        end.feed(Welcome(plain_accept()), 0.0)
    pair.near.write_all(0.0)
    pair.far.write_all(0.0)
    pair.far.receive(pair.near.wire, 0.1)
    pair.near.receive(pair.far.wire, 0.1)
    pair.near.wire.clear()
    pair.far.wire.clear()
    pair.near.write_all(0.1)
    pair.far.receive(pair.near.wire, 0.3)
    pair.near.wire.clear()
    pair.carry(0.35)
    assert pair.near.session.statistics().rtt == pytest.approx(0.25)


def test_a_probe_is_answered_by_its_own_pong_only() -> None:
    pair = risen()
    pair.near.feed(Probe(), 1.0)
    unasked = Vain("a ping was answered that nobody had sent")
    assert pair.near.receive(frames.pong_frame(bytes(8)), 1.0) == [unasked]
    pair.carry(1.1)
    assert pair.near.actions == [unasked, Answered()]


def test_bulk_frames_last_fifty_milliseconds_at_the_measured_rate() -> None:
    pair = risen()
    pair.near.feed(payload_post(1, 4 * MIB), 0.0)
    now, bytes_a_second = 0.0, 1_000_000
    while pair.near.session.wants_to_write:
        written = pair.near.write(now)
        now += len(written) / bytes_a_second
    assert pair.near.session.statistics().rate_up == pytest.approx(bytes_a_second, rel=0.01)
    assert pair.near.session.bulk_frame_bytes == 32 * 1024
    assert pair.near.session.unsent_limit == 16 * 1024


# Ends.


@pytest.mark.parametrize("code", list(CloseCode))
def test_a_close_carries_code_and_sentence(code: CloseCode) -> None:
    pair = risen()
    pair.near.feed(payload_post(1, 300_000), 0.0)
    pair.near.write(0.0)
    pair.near.feed(Close(code, "because"), 0.0)
    pair.carry(0.0)
    assert pair.far.session.end is not None
    assert pair.far.session.end.code == code.name.lower()
    assert "because" in down_of(pair.far)
    assert pair.near.session.state == pair.far.session.state == "ended"


def test_messages_posted_before_a_close_still_go_out() -> None:
    pair = risen()
    pair.near.feed(Post(1, BlockMissing(request=1), memoryview(b"")), 0.0)
    pair.near.feed(Close(CloseCode.LEAVING, ""), 0.0)
    pair.carry(0.0)
    assert pair.far.actions[0] == Deliver(BlockMissing(request=1), memoryview(b""))
    assert down_of(pair.far) == "left"


def test_a_lost_channel_ends_at_once_and_posting_says_why() -> None:
    pair = risen()
    pair.near.feed(payload_post(1, 300_000), 0.0)
    assert pair.near.feed(Lost("was lost (connection reset by peer)"), 1.0)[1:] == [Ended()]
    assert down_of(pair.near) == "was lost (connection reset by peer)"
    with pytest.raises(LinkLostError, match="was lost"):
        pair.near.feed(payload_post(2, 5), 1.0)
    assert pair.near.session.deadline == float("inf")
    assert not pair.near.session.wants_to_write


def test_a_refusal_by_tls_keeps_its_code() -> None:
    end = SessionEnd(dialed=True, now=0.0)
    end.feed(Lost("refused this peer: access denied", "bad-certificate"), 0.0)
    assert end.session.end is not None
    assert (end.session.end.code, end.session.end.refusal) == ("bad-certificate", True)
