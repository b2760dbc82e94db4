"""The receiving half of a session: where the next bytes belong, and what they were once they are there.

The parser never holds payload: it says into which memory the next bytes go (``reading``), and is told how
many came (``filled``). Payload bytes go straight into the memory that is delivered.
"""

from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from swarm.errors import LocalError, RemoteProtocolError
from swarm.protocol.session_memory import allocate
from swarm.wire.frames import HEADER_BYTES, Header, Kind, decode_header, decode_open
from swarm.wire.limits import (
    INITIAL_CREDIT_BYTES,
    MAX_HELLO_BYTES,
    MAX_OPEN_STREAMS,
    MAX_RECEIVE_BUFFER_BYTES,
    MIB,
)
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Accept, Hello, Refusal
from swarm.wire.messages.registry import decode_message

RECEIVE_WINDOW_BYTES: Final = 64 * MIB
"""Credit that a stream is kept at: the bytes under way at 10 Gbit/s over 50 ms."""
SCRATCH_BYTES: Final = 16 * 1024
"""Bytes of unwanted payload that are read at a time."""

_GREETINGS: Final = frozenset({Hello.NUMBER, Accept.NUMBER, Refusal.NUMBER})


@dataclass(slots=True, kw_only=True, eq=False)
class _Payload:
    """A payload on its way in. ``data`` is absent until its first bytes are due, and once it is unwanted."""

    message: Message
    size: int
    granted: int
    received: int = 0
    wanted: bool = True
    data: memoryview | None = field(default=None, repr=False)


class Control(Struct, frozen=True):
    """A frame other than OPEN and DATA, with its body."""

    header: Header
    body: memoryview


class Opened(Struct, frozen=True):
    """A payload begins."""

    stream: int
    message: Message
    size: int


class Progress(Struct, frozen=True):
    """Bytes of a payload came. ``grant`` is the credit that is due for it now, 0 for none."""

    stream: int
    grant: int


class Complete(Struct, frozen=True):
    """The last byte of a payload came."""

    message: Message
    payload: memoryview


Arrival = Control | Opened | Progress | Complete


class Inbox:
    """The parser of one link and its unfinished payloads."""

    def __init__(self, *, dialed: bool) -> None:
        self.payload_received = 0
        self._parity = 0 if dialed else 1
        self._last_stream = 0
        self._streams: dict[int, _Payload] = {}
        self._held = 0
        self._header_bytes = memoryview(bytearray(HEADER_BYTES))
        self._scratch: memoryview | None = None
        self._header: Header | None = None
        self._left = 0
        """Bytes of the current DATA frame that are not read yet."""
        self.reading = self._header_bytes
        """Where the next bytes belong; never empty."""
        self._target = self._header_bytes

    def __len__(self) -> int:
        """Payloads that are not wholly received."""
        return len(self._streams)

    @property
    def held(self) -> int:
        """Bytes of memory promised to unfinished payloads."""
        return self._held

    def filled(self, count: int, *, up: bool) -> Arrival | None:
        """``count`` bytes were put at the start of ``reading``; returns what they completed.

        ``up`` says whether the hellos have been accepted: before, only they may come. Raises
        RemoteProtocolError for what no peer sends.
        """
        if not 0 < count <= len(self.reading):
            raise LocalError(f"{count} bytes came where {len(self.reading)} were asked for")
        header = self._header
        if header is not None and header.kind is Kind.DATA:
            return self._data(header, count)
        if count < len(self.reading):
            self.reading = self.reading[count:]
            return None
        if header is None:
            return self._begin(decode_header(self._header_bytes), up=up)
        return self._finish(header, self._target)

    def abandon(self, stream: int) -> None:
        """Read the rest of this payload into nowhere; raises LocalError where it is unknown."""
        payload = self._streams.get(stream)
        if payload is None or not payload.wanted:
            raise LocalError(f"stream {stream} is not being received")
        payload.wanted = False
        payload.data = None
        self._held -= payload.size

    def cancelled(self, stream: int) -> None:
        """The sender abandons this stream; raises RemoteProtocolError where it is not open."""
        self._forget(stream, self._streams.get(stream))

    def is_ours(self, stream: int) -> bool:
        """Whether the payload of ``stream`` comes to us."""
        return stream % 2 == self._parity

    def abandon_all(self) -> None:
        """Give back all memory; nothing is read after this."""
        self._streams.clear()
        self._held = 0

    def check(self) -> None:
        """Raise LocalError where the books are wrong."""
        held = sum(p.size for p in self._streams.values() if p.wanted)
        window = max(RECEIVE_WINDOW_BYTES, INITIAL_CREDIT_BYTES)
        faults = (
            (not len(self.reading), "there is nowhere to read to"),
            (held != self._held, "held bytes are miscounted"),
            (held > MAX_RECEIVE_BUFFER_BYTES, "too many bytes are held"),
            (len(self._streams) > MAX_OPEN_STREAMS, "too many streams are open"),
            (any(p.received >= p.size for p in self._streams.values()), "a payload is over its end"),
            (any(p.received > p.granted for p in self._streams.values()), "a payload is over its credit"),
            (any(p.granted - p.received > window for p in self._streams.values()), "credit over the window"),
        )
        for wrong, sentence in faults:
            if wrong:
                raise LocalError(f"receiving: {sentence}")

    def _begin(self, header: Header, *, up: bool) -> Arrival | None:
        if not up:
            _check_greeting(header)
        self._header = header
        if header.kind is Kind.DATA:
            self._begin_data(header)
            return None
        if header.length == 0:
            return self._finish(header, memoryview(b""))
        if header.kind is Kind.OPEN:
            self._check_open(header.stream)
        self.reading = self._target = memoryview(bytearray(header.length))
        return None

    def _finish(self, header: Header, body: memoryview) -> Arrival:
        self._next_header()
        if header.kind is not Kind.OPEN:
            return Control(header, body)
        size, encoded = decode_open(header.number, body)
        if self._held + size > MAX_RECEIVE_BUFFER_BYTES:
            raise RemoteProtocolError(f"more than {MAX_RECEIVE_BUFFER_BYTES} bytes of payloads are open")
        message = decode_message(header.number, encoded)
        self._streams[header.stream] = _Payload(message=message, size=size, granted=INITIAL_CREDIT_BYTES)
        self._last_stream = header.stream
        self._held += size
        return Opened(header.stream, message, size)

    def _check_open(self, stream: int) -> None:
        if not self.is_ours(stream) or stream <= self._last_stream:
            raise RemoteProtocolError(f"stream {stream} is opened out of turn")
        if len(self._streams) >= MAX_OPEN_STREAMS:
            raise RemoteProtocolError(f"more than {MAX_OPEN_STREAMS} streams are open")

    def _begin_data(self, header: Header) -> None:
        payload = self._streams.get(header.stream)
        if payload is None:
            raise RemoteProtocolError(f"stream {header.stream} is not open")
        end = payload.received + header.length
        if end > payload.size:
            raise RemoteProtocolError(f"stream {header.stream} is longer than it was announced")
        if end > payload.granted:
            raise RemoteProtocolError(f"stream {header.stream} is over its credit")
        self._left = header.length
        self._aim(payload)

    def _aim(self, payload: _Payload) -> None:
        """Let the next bytes go where they belong in ``payload``, or nowhere."""
        if not payload.wanted:
            if self._scratch is None:
                self._scratch = memoryview(bytearray(SCRATCH_BYTES))
            self.reading = self._scratch[: self._left]
            return
        if payload.data is None:
            payload.data = allocate(payload.size)
        self.reading = payload.data[payload.received : payload.received + self._left]

    def _data(self, header: Header, count: int) -> Arrival | None:
        payload = self._streams[header.stream]
        payload.received += count
        self.payload_received += count
        self._left -= count
        if self._left:
            self._aim(payload)
            return None
        self._next_header()
        if payload.received == payload.size:
            return self._complete(header.stream, payload)
        return Progress(header.stream, self._due(payload))

    def _complete(self, stream: int, payload: _Payload) -> Arrival | None:
        self._forget(stream, payload)
        if payload.data is None or not payload.wanted:
            return None
        return Complete(payload.message, payload.data)

    def _due(self, payload: _Payload) -> int:
        window = payload.granted - payload.received
        if not payload.wanted or payload.granted >= payload.size or window > RECEIVE_WINDOW_BYTES // 2:
            return 0
        grant = min(RECEIVE_WINDOW_BYTES - window, payload.size - payload.granted)
        payload.granted += grant
        return grant

    def _next_header(self) -> None:
        self._header = None
        self.reading = self._target = self._header_bytes

    def _forget(self, stream: int, payload: _Payload | None) -> None:
        if payload is None:
            raise RemoteProtocolError(f"stream {stream} is not open")
        del self._streams[stream]
        if payload.wanted:
            self._held -= payload.size


def _check_greeting(header: Header) -> None:
    if header.kind is Kind.CLOSE:
        return
    if header.kind is not Kind.MESSAGE or header.number not in _GREETINGS:
        raise RemoteProtocolError("something was sent before the hellos were accepted")
    if header.length > MAX_HELLO_BYTES:
        raise RemoteProtocolError(f"a hello of {header.length} bytes is over the limit")
