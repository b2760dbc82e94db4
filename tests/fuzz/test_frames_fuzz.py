"""Frame parser: whatever the bytes, a header, or RemoteProtocolError; and a session never lets one out."""

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.errors import RemoteProtocolError
from swarm.protocol.session import Session
from swarm.protocol.session_events import Tick, Welcome, Writable
from swarm.testing.hellos import plain_accept, plain_hello
from swarm.testing.sessions import pour
from swarm.wire import frames
from swarm.wire.frames import CancelCode, CloseCode, Kind
from swarm.wire.messages.blocks import BlockMissing, BlockReply, BlockRequest
from swarm.wire.messages.registry import MESSAGES, encode_message

REPLY = encode_message(BlockReply(request=1))
KNOWN = st.sampled_from(
    [
        frames.message_frame(BlockRequest(request=1, digest="a" * 52)),
        frames.message_frame(BlockMissing(request=1)),
        frames.message_frame(plain_hello()),
        frames.message_frame(plain_accept()),
        *(frames.open_frame(stream, 41, REPLY, 40) for stream in (1, 2, 3)),
        *(frames.data_header(stream, 20) + bytes(20) for stream in (1, 2, 3)),
        *(frames.credit_frame(stream, 100) for stream in (1, 2)),
        *(frames.cancel_frame(stream, CancelCode.WITHDRAWN, "x") for stream in (1, 2, 3)),
        frames.ping_frame(bytes(8)),
        frames.pong_frame(bytes(8)),
        frames.close_frame(CloseCode.FAULT, "x"),
    ]
)
HEADERS = st.builds(
    lambda kind, flags, number, stream, length: b"".join(
        [
            bytes([kind, flags]),
            number.to_bytes(2, "big"),
            stream.to_bytes(4, "big"),
            length.to_bytes(4, "big"),
        ]
    ),
    st.integers(0, 9),
    st.sampled_from([0, 0, 0, 1]),
    st.sampled_from([0, 1, *MESSAGES, 500]),
    st.sampled_from([0, 1, 2, 3, 2**32 - 1]),
    st.sampled_from([0, 1, 4, 8, 9, 20, 5000, 2**20, 2**32 - 1]),
)
PIECES = st.lists(st.one_of(KNOWN, HEADERS, st.binary(max_size=30)), max_size=12).map(b"".join)


@given(st.one_of(HEADERS, st.binary(min_size=12, max_size=12)))
def test_a_header_is_understood_or_refused(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        header = frames.decode_header(data)
        assert isinstance(header.kind, Kind)
        assert header.length < 2**21


@given(st.integers(0, 2**16 - 1), st.binary(max_size=40))
def test_bodies_are_understood_or_refused(number: int, body: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        frames.decode_sentence(body)
    if len(body) == 4:
        with contextlib.suppress(RemoteProtocolError):
            frames.decode_credit(body)
    if len(body) > 8 and number in MESSAGES:
        with contextlib.suppress(RemoteProtocolError):
            frames.decode_open(number, body)


@settings(max_examples=300)
@given(data=PIECES, up=st.booleans(), piece=st.integers(1, 40))
def test_a_session_survives_any_bytes(data: bytes, up: bool, piece: int) -> None:
    session = Session(plain_hello(), dialed=True, now=0.0)
    opening = frames.message_frame(plain_hello()) + frames.message_frame(plain_accept()) if up else b""
    welcomed = False
    for event in pour(opening + data, session, piece=piece):
        session.handle(event, now=1.0)
        if session.greeting.peer_hello is not None and session.state == "greeting" and not welcomed:
            welcomed = True
            session.handle(Welcome(plain_accept()), now=1.0)
        session.check()
    for now in (1.0, 30.0, 60.0, 90.0):
        session.handle(Writable(0), now=now)
        session.handle(Tick(), now=now)
        session.check()
