"""Frames: golden bytes, and every way in which a header or a body can be wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import RemoteProtocolError
from swarm.wire import frames
from swarm.wire.frames import CancelCode, CloseCode, Header, Kind
from swarm.wire.limits import (
    MAX_CREDIT_BYTES,
    MAX_DATA_FRAME_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_SENTENCE_LENGTH,
)
from swarm.wire.messages.blocks import BlockMissing, BlockReply
from swarm.wire.messages.pipeline import BoundaryTensor
from swarm.wire.messages.registry import decode_message, encode_message
from swarm.wire.text import printable

BODY = encode_message(BlockReply(request=5))


def header(kind: int, *, flags: int = 0, number: int = 0, stream: int = 0, length: int = 0) -> bytes:
    return (
        bytes([kind, flags])
        + number.to_bytes(2, "big")
        + stream.to_bytes(4, "big")
        + length.to_bytes(4, "big")
    )


@pytest.mark.parametrize(
    ("frame", "golden"),
    [
        (frames.message_frame(BlockMissing(request=5)), "0100002a0000000000000002 9105"),
        (frames.open_frame(7, 41, BODY, 1000), "020000290000000700 00000a 00000000000003e8 9105"),
        (frames.data_header(7, 262144), "030000000000000700040000"),
        (frames.credit_frame(8, 1048576), "0400000000000008 00000004 00100000"),
        (frames.cancel_frame(9, CancelCode.REFUSED, "no"), "0500000100000009 00000002 6e6f"),
        (frames.ping_frame(b"token123"), "060000000000000000000008 746f6b656e313233"),
        (frames.pong_frame(b"token123"), "070000000000000000000008 746f6b656e313233"),
        (frames.close_frame(CloseCode.DUPLICATE, "bye"), "0800000200000000 00000003 627965"),
    ],
)
def test_golden_bytes(frame: bytes, golden: str) -> None:
    assert frame == bytes.fromhex(golden)
    decoded = frames.decode_header(frame[:12])
    assert decoded.kind == frame[0]
    if decoded.kind is not Kind.DATA:
        assert decoded.length == len(frame) - 12


def test_header_fields_come_back() -> None:
    data = header(3, stream=0x01020304, length=5)
    assert frames.decode_header(data) == Header(Kind.DATA, 0, 0x01020304, 5)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (header(0), "no frame of kind 0"),
        (header(9), "no frame of kind 9"),
        (header(3, flags=1, stream=1, length=1), "unknown flags"),
        (header(1, number=41, length=0), "outside the limits"),
        (header(1, number=41, length=MAX_MESSAGE_BYTES + 1), "outside the limits"),
        (header(1, number=41, stream=1, length=5), "names stream 1"),
        (header(1, number=999, length=5), "no message number 999"),
        (header(2, number=41, stream=1, length=8), "outside the limits"),
        (header(2, number=41, length=9), "names stream 0"),
        (header(2, number=42, stream=1, length=9), "BlockMissing has no payload"),
        (header(3, stream=1, length=0), "outside the limits"),
        (header(3, stream=1, length=MAX_DATA_FRAME_BYTES + 1), "outside the limits"),
        (header(3, length=5), "names stream 0"),
        (header(3, number=1, stream=1, length=5), "has the number 1"),
        (header(4, stream=1, length=3), "outside the limits"),
        (header(5, number=2, stream=1), "unknown code 2"),
        (header(6, length=7), "outside the limits"),
        (header(7, length=9), "outside the limits"),
        (header(8, number=9), "unknown code 9"),
        (header(8, stream=1), "names stream 1"),
        (header(8, length=4 * MAX_SENTENCE_LENGTH + 1), "outside the limits"),
    ],
)
def test_a_header_that_no_peer_sends_is_refused_before_its_body(data: bytes, complaint: str) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        frames.decode_header(data)


def test_an_open_frame_comes_back() -> None:
    frame = frames.open_frame(7, 41, BODY, 1000)
    size, body = frames.decode_open(41, frame[12:])
    assert size == 1000
    assert decode_message(41, body) == BlockReply(request=5)


@pytest.mark.parametrize("size", [0, BlockReply.MAX_PAYLOAD + 1, 2**63])
def test_a_payload_beyond_what_its_message_may_have_is_refused(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match="outside the limits of BlockReply"):
        frames.decode_open(41, size.to_bytes(8, "big") + BODY)


def test_the_largest_payload_is_accepted() -> None:
    size, _ = frames.decode_open(BoundaryTensor.NUMBER, MAX_PAYLOAD_BYTES.to_bytes(8, "big") + b"\x90")
    assert size == MAX_PAYLOAD_BYTES


@pytest.mark.parametrize("granted", [0, MAX_CREDIT_BYTES + 1])
def test_credit_outside_its_limits_is_refused(granted: int) -> None:
    with pytest.raises(RemoteProtocolError, match="outside the limits of a grant"):
        frames.decode_credit(granted.to_bytes(4, "big"))


def test_a_sentence_cannot_move_the_cursor_or_hide() -> None:
    assert frames.decode_sentence("ok \x1b[2J\n\u202e€".encode()) == "ok  [2J  €"


def test_a_sentence_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="not UTF-8"):
        frames.decode_sentence(b"\xff")


@given(st.text())
def test_any_text_can_be_the_reason_of_a_close(text: str) -> None:
    frame = frames.close_frame(CloseCode.LEAVING, text)
    assert frames.decode_header(frame[:12]).length == len(frame) - 12
    assert frames.decode_sentence(frame[12:]) == printable(text)
    assert len(printable(text)) <= MAX_SENTENCE_LENGTH
