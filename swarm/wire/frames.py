"""Frames: what a link's byte stream consists of (decision D3). A header of twelve bytes, then a body.

::

    offset  size  field     (big-endian)
         0     1  kind
         1     1  flags     zero
         2     2  number    of the message (MESSAGE, OPEN), or a code (CANCEL, CLOSE); else zero
         4     4  stream    of the payload (OPEN, DATA, CREDIT, CANCEL); else zero
         8     4  length    of the body, in bytes

    MESSAGE  body: a whole message without a payload
    OPEN     body: length of the payload (8 bytes), then the message that it belongs to
    DATA     body: the next bytes of the payload
    CREDIT   body: bytes that the sender of the payload may send beyond those granted before (4 bytes)
    CANCEL   body: why the stream is abandoned, UTF-8; by its sender, or by its receiver
    PING     body: a token (8 bytes, the sender's microseconds since the link began) to be returned in a PONG
    PONG     body: the token
    CLOSE    body: why the link ends, UTF-8

A stream's number is odd where the peer that dialled sends its payload, else even, and never used again.
Headers are checked whole before a byte of the body is read, so what a body may cost is known before it is
spent. Every decoder raises RemoteProtocolError, and nothing else, whatever the bytes.
"""

import functools
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from msgspec import Struct

from swarm.errors import RemoteProtocolError
from swarm.wire.limits import (
    MAX_CREDIT_BYTES,
    MAX_DATA_FRAME_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_SENTENCE_LENGTH,
)
from swarm.wire.messages.base import Message
from swarm.wire.messages.registry import MESSAGES, encode_message
from swarm.wire.text import printable

HEADER_BYTES: Final = 12
TOKEN_BYTES: Final = 8
PAYLOAD_LENGTH_BYTES: Final = 8
MAX_STREAM: Final = 2**32 - 1
MAX_SENTENCE_BYTES: Final = 4 * MAX_SENTENCE_LENGTH
"""UTF-8 takes up to four bytes a character."""

_HEADER: Final = struct.Struct(">BBHII")
_PAYLOAD_LENGTH: Final = struct.Struct(">Q")
_CREDIT: Final = struct.Struct(">I")

Buffer = bytes | bytearray | memoryview
"""Bytes that are sent or parsed without a copy."""


class Kind(IntEnum):
    """Kinds of frames."""

    MESSAGE = 1
    OPEN = 2
    DATA = 3
    CREDIT = 4
    CANCEL = 5
    PING = 6
    PONG = 7
    CLOSE = 8


MESSAGE, OPEN, DATA, CREDIT, CANCEL, PING, PONG, CLOSE = Kind
"""The kinds again: to look one up in its class takes as long as to unpack a header (tried)."""


class CloseCode(IntEnum):
    """Why a link ends, for programs."""

    LEAVING = 0
    """The sender goes, or needs the link no more."""
    PROTOCOL = 1
    """The receiver broke the protocol, says the sender."""
    DUPLICATE = 2
    """Another link between the two peers takes its place."""
    FAULT = 3
    """Something failed at the sender."""
    REVOKED = 4
    """The organiser has revoked the receiver."""


class CancelCode(IntEnum):
    """Why a stream is abandoned, for programs."""

    WITHDRAWN = 0
    """Its sender does not want to send the rest."""
    REFUSED = 1
    """Its receiver does not want the rest."""


class Header(Struct, frozen=True, gc=False):
    """A checked header."""

    kind: Kind
    number: int
    stream: int
    length: int


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the header of a kind must be like."""

    kind: Kind
    shortest: int
    longest: int
    streams: bool
    """Whether it belongs to a stream."""
    messages: bool = False
    """Whether ``number`` is that of a message."""
    codes: type[IntEnum] | None = None
    """What ``number`` may be where it is a code."""


_SHAPES: Final = {
    int(shape.kind): shape
    for shape in (
        _Shape(MESSAGE, 1, MAX_MESSAGE_BYTES, streams=False, messages=True),
        _Shape(
            OPEN,
            PAYLOAD_LENGTH_BYTES + 1,
            PAYLOAD_LENGTH_BYTES + MAX_MESSAGE_BYTES,
            streams=True,
            messages=True,
        ),
        _Shape(DATA, 1, MAX_DATA_FRAME_BYTES, streams=True),
        _Shape(CREDIT, _CREDIT.size, _CREDIT.size, streams=True),
        _Shape(CANCEL, 0, MAX_SENTENCE_BYTES, streams=True, codes=CancelCode),
        _Shape(PING, TOKEN_BYTES, TOKEN_BYTES, streams=False),
        _Shape(PONG, TOKEN_BYTES, TOKEN_BYTES, streams=False),
        _Shape(CLOSE, 0, MAX_SENTENCE_BYTES, streams=False, codes=CloseCode),
    )
}


@functools.lru_cache(maxsize=256)
def decode_header(data: bytes) -> Header:
    """The header in the twelve bytes of ``data``; raises RemoteProtocolError for one that no peer sends.

    Most headers of a link are as one shortly before.
    """
    value, flags, number, stream, length = _HEADER.unpack(data)
    shape = _SHAPES.get(value)
    if shape is None:
        raise RemoteProtocolError(f"there is no frame of kind {value}")
    kind = shape.kind
    if flags:
        raise RemoteProtocolError(f"a {kind.name} frame has unknown flags")
    if not shape.shortest <= length <= shape.longest:
        raise RemoteProtocolError(f"a {kind.name} frame of {length} bytes is outside the limits of its kind")
    if (stream != 0) is not shape.streams:
        raise RemoteProtocolError(f"a {kind.name} frame names stream {stream}")
    _check_number(shape, number)
    return Header(kind, number, stream, length)


def _check_number(shape: _Shape, number: int) -> None:
    if shape.messages:
        message = MESSAGES.get(number)
        if message is None:
            raise RemoteProtocolError(f"there is no message number {number}")
        if shape.kind is OPEN and not message.MAX_PAYLOAD:
            raise RemoteProtocolError(f"message {message.__name__} has no payload")
    elif shape.codes is not None:
        if not 0 <= number < len(shape.codes):
            raise RemoteProtocolError(f"a {shape.kind.name} frame has the unknown code {number}")
    elif number:
        raise RemoteProtocolError(f"a {shape.kind.name} frame has the number {number}")


def decode_open(number: int, body: Buffer) -> tuple[int, memoryview]:
    """The length of the payload that an OPEN frame announces, and the body of its message.

    Raises RemoteProtocolError where the message may not have so long a payload.
    """
    (length,) = _PAYLOAD_LENGTH.unpack_from(body)
    limit = min(MESSAGES[number].MAX_PAYLOAD, MAX_PAYLOAD_BYTES)
    if not 1 <= length <= limit:
        name = MESSAGES[number].__name__
        raise RemoteProtocolError(
            f"a payload of {length} bytes is outside the limits of {name}: 1 to {limit}"
        )
    return length, memoryview(body)[PAYLOAD_LENGTH_BYTES:]


def decode_credit(body: Buffer) -> int:
    """The bytes that a CREDIT frame grants."""
    (granted,) = _CREDIT.unpack(body)
    if not 1 <= granted <= MAX_CREDIT_BYTES:
        raise RemoteProtocolError(f"credit of {granted} bytes is outside the limits of a grant")
    return int(granted)


def decode_sentence(body: Buffer) -> str:
    """The text of a CANCEL or CLOSE frame, fit to be put on a screen."""
    try:
        return printable(str(body, "utf-8"))
    except UnicodeDecodeError:
        raise RemoteProtocolError("a sentence is not UTF-8") from None


def message_frame(message: Message) -> bytes:
    """A whole MESSAGE frame; raises LocalError where the message is larger than any receiver takes."""
    body = encode_message(message)
    return _HEADER.pack(MESSAGE, 0, message.NUMBER, 0, len(body)) + body


def open_frame(stream: int, number: int, message: bytes, payload_bytes: int) -> bytes:
    """The frame that starts a stream of ``payload_bytes`` for the encoded ``message`` with this number."""
    length = PAYLOAD_LENGTH_BYTES + len(message)
    return _HEADER.pack(OPEN, 0, number, stream, length) + _PAYLOAD_LENGTH.pack(payload_bytes) + message


def data_header(stream: int, length: int) -> bytes:
    """The header of a DATA frame; its ``length`` bytes of payload follow."""
    return _HEADER.pack(DATA, 0, 0, stream, length)


def credit_frame(stream: int, granted: int) -> bytes:
    """A CREDIT frame for ``granted`` more bytes."""
    return _HEADER.pack(CREDIT, 0, 0, stream, _CREDIT.size) + _CREDIT.pack(granted)


def cancel_frame(stream: int, code: CancelCode, sentence: str) -> bytes:
    """A CANCEL frame."""
    body = printable(sentence).encode("utf-8", "replace")
    return _HEADER.pack(CANCEL, 0, code, stream, len(body)) + body


def ping_frame(token: bytes) -> bytes:
    """A PING frame with a token of eight bytes."""
    return _HEADER.pack(PING, 0, 0, 0, TOKEN_BYTES) + token


def pong_frame(token: bytes) -> bytes:
    """The PONG frame that answers a PING with this token."""
    return _HEADER.pack(PONG, 0, 0, 0, TOKEN_BYTES) + token


def close_frame(code: CloseCode, sentence: str) -> bytes:
    """A CLOSE frame."""
    body = printable(sentence).encode("utf-8", "replace")
    return _HEADER.pack(CLOSE, 0, code, 0, len(body)) + body
