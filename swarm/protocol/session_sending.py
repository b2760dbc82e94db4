"""The sending half of a session: what is written next. Control before bulk, and bulk in turns.

Blocks yield: while training's tensors are sent too, which somebody waits for, they get few of the turns.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from swarm.errors import LocalError, RemoteProtocolError
from swarm.protocol.session_budget import Share
from swarm.protocol.session_events import NO_BYTES, Sent, Write
from swarm.wire.frames import (
    MAX_STREAM,
    CancelCode,
    cancel_frame,
    credit_frame,
    data_header,
    message_frame,
    open_frame,
    ping_frame,
    pong_frame,
)
from swarm.wire.limits import (
    INITIAL_CREDIT_BYTES,
    MAX_RECEIVE_BUFFER_BYTES,
    MAX_UNSENT_PONGS,
)
from swarm.wire.messages.base import Message
from swarm.wire.messages.registry import encode_message

CONTROL_WRITE_BYTES: Final = 64 * 1024
"""Control frames are joined up to about this size, so that many small ones cost one call."""
STREAMS_AT_ONCE: Final = 64
"""Payloads that take turns. The receiver has to find memory for the unasked bytes of each (at most
MAX_OPEN_STREAMS); more would only make all of them later."""
YIELDING_TURNS: Final = 8
"""While others have something to send, payloads that yield get one turn in so many: they do arrive."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Payload:
    """A payload on its way out. ``message`` is the encoded message ``number`` that it belongs to."""

    key: int
    number: int
    message: bytes = field(repr=False)
    data: memoryview
    credit: int
    yields: bool
    admitted: bool = False
    """Whether it takes turns, rather than waits."""
    stream: int = 0
    """0 until its first turn: streams open in the order of their numbers, and turns come in another."""
    offset: int = 0


class _Control(Struct, frozen=True, gc=False):
    """A control frame on its way out; ``key`` is 0 where nobody waits for it."""

    frame: bytes
    key: int


class Outbox:
    """Everything that waits to be written, and the streams it belongs to.

    Opens no stream beyond STREAMS_AT_ONCE and MAX_RECEIVE_BUFFER_BYTES of payload: later ones wait. A payload
    is ``waiting`` (not admitted), ``ready`` (in the round of turns) or ``starved`` (no credit).
    """

    def __init__(self, *, dialed: bool, share: Share) -> None:
        self.payload_sent = 0
        self.is_idle = True
        """Whether no control waits, nor was given up."""
        self.overflowed = False
        """Whether more control waited than the link's share of memory; what came then was not queued."""
        self._share = share
        self._next_stream = 1 if dialed else 2
        self._control: deque[_Control] = deque()
        self._pongs: list[bytes] = []
        """A list, as all that is short: an empty deque takes 760 bytes of each link."""
        self._grants: dict[int, int] = {}
        self._keys: dict[int, _Payload] = {}
        self._waiting: deque[_Payload] = deque()
        self._ready: list[_Payload] = []
        self._unyielding = 0
        """Turns of others since a payload last had one that yields, while it was ready."""
        self._streams: dict[int, _Payload] = {}
        self._admitted = 0
        self._open_bytes = 0

    def __len__(self) -> int:
        """Payloads that are not wholly sent."""
        return len(self._keys)

    @property
    def has_control(self) -> bool:
        """Whether a control frame waits."""
        return bool(self._control or self._pongs or self._grants)

    @property
    def has_bulk(self) -> bool:
        """Whether payload could be written now."""
        return bool(self._ready or (self._waiting and self._fits(self._waiting[0])))

    def control(self, frame: bytes, key: int = 0) -> None:
        """Queue a control frame, or find that the other side does not read them (:attr:`overflowed`)."""
        self.is_idle = False
        if self.overflowed or not self._share.take(len(frame)):
            self.overflowed = True
            return
        self._control.append(_Control(frame, key))

    def last_words(self, frame: bytes) -> None:
        """Queue a frame that ends the link; in place of all others where they are too many."""
        if self.overflowed:
            self._control.clear()
            self._share.give_back_all()
            self.overflowed = False
        self.control(frame)

    def post(self, key: int, message: Message, payload: memoryview) -> None:
        """Queue a message; raises LocalError for one that no receiver takes."""
        if key <= 0 or key in self._keys:
            raise LocalError(f"sending {key} is posted twice")
        if not payload:
            self.control(message_frame(message), key)
            return
        if len(payload) > message.MAX_PAYLOAD:
            raise LocalError(f"{type(message).__name__} may not have a payload of {len(payload)} bytes")
        sending = _Payload(
            key=key,
            number=message.NUMBER,
            message=encode_message(message),
            data=payload,
            credit=INITIAL_CREDIT_BYTES,
            yields=message.YIELDS,
        )
        self._keys[key] = sending
        self._waiting.append(sending)

    def pong(self, token: bytes) -> None:
        """Queue an answer; raises RemoteProtocolError where too many wait already."""
        if len(self._pongs) >= MAX_UNSENT_PONGS:
            raise RemoteProtocolError("pings come faster than their answers are read")
        self._pongs.append(token)
        self.is_idle = False

    def grant(self, stream: int, granted: int) -> None:
        """Queue credit for a stream of the other side."""
        self._grants[stream] = self._grants.get(stream, 0) + granted
        self.is_idle = False

    def withdraw(self, key: int) -> None:
        """Stop sending what was posted under ``key``; nothing happens where it is sent already."""
        payload = self._keys.get(key)
        if payload is not None:
            self._drop(payload, "withdrawn")

    def credited(self, stream: int, granted: int) -> None:
        """The other side grants credit; raises RemoteProtocolError for a stream that never was."""
        payload = self._stream(stream)
        if payload is not None:
            starved = not payload.credit
            payload.credit += granted
            if starved:
                self._ready.append(payload)

    def unwanted(self, stream: int) -> int:
        """The other side does not want the rest; returns its key, 0 where it is sent or withdrawn.

        Raises RemoteProtocolError for a stream that never was. The CANCEL is answered with another, so that
        the receiver knows when the last byte has come.
        """
        payload = self._stream(stream)
        if payload is None:
            return 0
        self._drop(payload, "as you wish")
        return payload.key

    def abandon(self) -> None:
        """Forget all payloads, and what else need not be said before a CLOSE."""
        self._keys.clear()
        self._waiting.clear()
        self._ready.clear()
        self._streams.clear()
        self._grants.clear()
        self._admitted = self._open_bytes = 0

    def forget_control(self) -> None:
        """Nothing is written any more."""
        self._control.clear()
        self._share.give_back_all()

    def next_control(self, ping: bytes | None) -> tuple[Write | None, list[Sent]]:
        """The next control bytes, with a ping of this token, and which messages end with them."""
        frames: list[bytes] = []
        sent: list[Sent] = []
        size = 0
        while self._control and size < CONTROL_WRITE_BYTES:
            control = self._control.popleft()
            frames.append(control.frame)
            size += len(control.frame)
            self._share.give_back(len(control.frame))
            if control.key:
                sent.append(Sent(control.key))
        if self._pongs:
            frames += [pong_frame(token) for token in self._pongs]
            self._pongs.clear()
        if self._grants:
            frames += [credit_frame(stream, granted) for stream, granted in self._grants.items()]
            self._grants.clear()
        self.is_idle = not self._control
        if ping is not None:
            frames.append(ping_frame(ping))
        if not frames:
            return None, sent
        return Write(frames[0] if len(frames) == 1 else b"".join(frames), NO_BYTES), sent

    def next_bulk(self, length: int) -> tuple[Write | None, list[Sent]]:
        """The next DATA frame of at most ``length`` bytes, and the payload that ends with it, if one does."""
        while self._waiting and self._fits(self._waiting[0]):
            self._admit(self._waiting.popleft())
        if not self._ready:
            return None, []
        payload = self._ready.pop(self._turn())
        opening = b"" if payload.stream else self._open(payload)
        end = min(payload.offset + min(length, payload.credit), len(payload.data))
        part = payload.data[payload.offset : end]
        head = opening + data_header(payload.stream, len(part))
        payload.offset = end
        payload.credit -= len(part)
        self.payload_sent += len(part)
        if end == len(payload.data):
            self._forget(payload)
            return Write(head, part), [Sent(payload.key)]
        if payload.credit:
            self._ready.append(payload)
        return Write(head, part), []

    def check(self) -> None:
        """Raise LocalError where the books are wrong."""
        ready, waiting = list(self._ready), list(self._waiting)
        opened = [payload for payload in self._keys.values() if payload.admitted]
        faults = (
            (len(opened) != self._admitted, "admitted payloads are miscounted"),
            (len(opened) > STREAMS_AT_ONCE, "too many streams are open"),
            (self._open_bytes > MAX_RECEIVE_BUFFER_BYTES, "too many bytes are open"),
            (self._open_bytes != sum(len(p.data) for p in opened), "open bytes are miscounted"),
            (len(self._keys) != len(opened) + len(waiting), "a payload is lost"),
            (any(p.stream or p.admitted for p in waiting), "a waiting payload has a stream"),
            (sorted(p.key for p in ready) != sorted(p.key for p in opened if p.credit),
             "the round of turns is not that of the payloads with credit"),
            (any(self._keys.get(p.key) is not p for p in self._streams.values()), "a stream has no payload"),
            (any(p.offset and not p.stream for p in opened), "bytes were sent before their stream was open"),
            (any(p.offset >= len(p.data) or p.credit < 0 for p in opened), "a payload is over its end"),
            (len(self._pongs) > MAX_UNSENT_PONGS, "too many answers wait"),
            (self.is_idle and (self.has_control or self.overflowed), "idle while control waits"),
            (self._share.held != sum(len(c.frame) for c in self._control), "control is miscounted"),
        )  # fmt: skip
        for wrong, sentence in faults:
            if wrong:
                raise LocalError(f"sending: {sentence}")

    def _turn(self) -> int:
        """Which of the ready payloads is next."""
        first = self._ready[0].yields
        other = next((place for place, payload in enumerate(self._ready) if payload.yields != first), None)
        if other is None:
            return 0
        yields = self._unyielding >= YIELDING_TURNS - 1
        self._unyielding = 0 if yields else self._unyielding + 1
        return 0 if first == yields else other

    def _fits(self, payload: _Payload) -> bool:
        return (
            self._admitted < STREAMS_AT_ONCE
            and self._open_bytes + len(payload.data) <= MAX_RECEIVE_BUFFER_BYTES
        )

    def _admit(self, payload: _Payload) -> None:
        payload.admitted = True
        self._admitted += 1
        self._open_bytes += len(payload.data)
        self._ready.append(payload)

    def _open(self, payload: _Payload) -> bytes:
        """Give ``payload`` its stream; the OPEN frame, which goes before its first bytes."""
        if self._next_stream > MAX_STREAM:
            raise LocalError("a link has run out of stream numbers")
        payload.stream = self._next_stream
        self._next_stream += 2
        self._streams[payload.stream] = payload
        return open_frame(payload.stream, payload.number, payload.message, len(payload.data))

    def _stream(self, stream: int) -> _Payload | None:
        if stream % 2 != self._next_stream % 2 or stream >= self._next_stream:
            raise RemoteProtocolError(f"stream {stream} was never opened")
        return self._streams.get(stream)

    def _drop(self, payload: _Payload, sentence: str) -> None:
        if payload.stream:
            self.control(cancel_frame(payload.stream, CancelCode.WITHDRAWN, sentence))
        if not payload.admitted:
            self._waiting.remove(payload)
        elif payload.credit:
            self._ready.remove(payload)
        self._forget(payload)

    def _forget(self, payload: _Payload) -> None:
        del self._keys[payload.key]
        self._streams.pop(payload.stream, None)
        if payload.admitted:
            self._admitted -= 1
            self._open_bytes -= len(payload.data)
