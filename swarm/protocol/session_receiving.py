"""The receiving half of a session: where the next bytes belong, and what they were once they are there.

The parser says into which memory the next bytes go (``reading``), and is told how many came (``filled``).
Frames are read together, as far as they are small. Payload bytes go straight into the memory that is
delivered, but for the few that may come with the header before them.
"""

from dataclasses import dataclass, field
from typing import Final

from swarm.errors import LocalError, RemoteProtocolError
from swarm.protocol.session_arrivals import Arrival, Control, Opened, Progress
from swarm.protocol.session_budget import LinkMemory
from swarm.protocol.session_events import NO_BYTES, Deliver
from swarm.protocol.session_memory import MAPPED_BYTES
from swarm.wire.frames import (
    CLOSE,
    DATA,
    HEADER_BYTES,
    MESSAGE,
    OPEN,
    Buffer,
    Header,
    decode_header,
    decode_open,
)
from swarm.wire.limits import (
    INITIAL_CREDIT_BYTES,
    MAX_HELLO_BYTES,
    MAX_OPEN_STREAMS,
    MAX_RECEIVE_BUFFER_BYTES,
    MIB,
)
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Accept, Hello, Refusal
from swarm.wire.messages.registry import MESSAGES, decode_message

RECEIVE_WINDOW_BYTES: Final = 64 * MIB
"""Credit that a stream is kept at: the bytes under way at 10 Gbit/s over 50 ms."""
FIRST_BYTES: Final = 256 * 1024
"""Memory that a payload gets at first. Once it is full the rest is believed to come, and gets its memory, in
large pages; those bytes are copied."""
FRAME_BYTES: Final = 1024
"""Bytes that are read at a time where frames begin: what is small comes whole, with what is behind it."""
SCRATCH_BYTES: Final = 16 * 1024
"""Bytes of unwanted payload that are read at a time."""
STANDSTILL_LOOKS: Final = 12
"""Looks at which a stream had not moved since the one before, after which its sender is given up."""

GREETINGS: Final = frozenset({Hello.NUMBER, Accept.NUMBER, Refusal.NUMBER})
"""The messages that are about the link itself; no others come before it is up."""
TRAFFIC: Final = frozenset(MESSAGES) - GREETINGS
"""Those that are passed on."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Payload:
    """A payload on its way in. ``data`` is absent until its first bytes are due, and once it is unwanted."""

    message: Message
    size: int
    granted: int
    begun: int
    """Bytes held of the link's share for payloads that begin."""
    granted_whole: bool = False
    """Whether all its bytes are held of the link's share for payloads that are given credit."""
    received: int = 0
    wanted: bool = True
    seen: int = 0
    """``received`` at the last look."""
    still: int = 0
    """Looks since it last moved."""
    data: memoryview | None = field(default=None, repr=False)


class Inbox:
    """The parser of one link and its unfinished payloads.

    Beyond what its sender may send unasked, a payload gets credit only once all of it has its place in the
    link's share of memory: the oldest first, so that those that have begun end.
    """

    def __init__(self, *, dialed: bool, memory: LinkMemory) -> None:
        self.bytes_received = 0
        self.payload_received = 0
        self.passing: frozenset[int] = frozenset()
        """Numbers of the messages that may come: none but greetings before those are accepted."""
        self._memory = memory
        self._waiting: dict[int, _Payload] = {}
        """Streams that wait for memory, the oldest first."""
        self._parity = 0 if dialed else 1
        self._last_stream = 0
        self._streams: dict[int, _Payload] = {}
        self._held = 0
        self._frames = memoryview(bytearray(FRAME_BYTES))
        self._begin = self._end = 0
        """What was read into ``_frames`` and not taken yet."""
        self._scratch: memoryview | None = None
        self._header: Header | None = None
        self._left = 0
        """Bytes of the current DATA frame that are not read yet."""
        self.reading = self._body = self._frames
        """Where the next bytes belong; empty where there is more to take first. All of ``_frames`` where
        there is nothing in it."""

    def __len__(self) -> int:
        """Payloads that are not wholly received."""
        return len(self._streams)

    @property
    def held(self) -> int:
        """Bytes of unfinished payloads that are wanted."""
        return self._held

    @property
    def has_more(self) -> bool:
        """Whether something can be taken of what was read before."""
        return not self.reading

    @property
    def waits_for_memory(self) -> bool:
        """Whether :meth:`readmit` may find something to do."""
        return bool(self._waiting)

    def readmit(self) -> list[Progress]:
        """Credit for streams that waited for memory, as far as there is some now."""
        found = []
        while self._waiting:
            stream, payload = next(iter(self._waiting.items()))
            if not self._admit(stream, payload):
                break
            found.append(Progress(stream, self._grant(payload)))
        return found

    def look(self, now: float) -> str:
        """To be called at even intervals; why the other side is to be given up: empty while all is well."""
        self._memory.mappings.trim(now)
        for stream, payload in self._streams.items():
            may_move = payload.received < payload.granted or not payload.wanted
            payload.still = payload.still + 1 if may_move and payload.received == payload.seen else 0
            payload.seen = payload.received
            if payload.still >= STANDSTILL_LOOKS:
                return f"stream {stream} stood still"
        return ""

    def filled(self, count: int) -> Arrival | None:
        """``count`` bytes were put at the start of ``reading``; returns what they completed.

        ``count`` is 0 where ``has_more``, and only there. Raises RemoteProtocolError for what no peer sends.
        """
        if not 0 < count <= len(self.reading) and (count or self.reading):
            raise LocalError(f"{count} bytes came where {len(self.reading)} were asked for")
        self.bytes_received += count
        if self._header is not None:
            return self._filled_body(self._header, count)
        frames, begin, end = self._frames, self._begin, self._end + count
        body = begin + HEADER_BYTES
        if body > end:
            self._end = end
            self._next_frame()
            return None
        header = decode_header(frames[begin:body].tobytes())
        behind = body + header.length
        if behind > end or header.number not in self.passing or header.kind is not MESSAGE:
            self._begin, self._end = body, end
            return self._begin_frame(header)
        message = decode_message(header.number, frames[body:behind])
        if behind < end or self.reading is not frames:
            self._begin, self._end = behind, end
            self._next_frame()
        return Deliver(message, NO_BYTES)

    def abandon(self, stream: int) -> None:
        """Read the rest of this payload into nowhere; raises LocalError where it is unknown."""
        payload = self._streams.get(stream)
        if payload is None or not payload.wanted:
            raise LocalError(f"stream {stream} is not being received")
        payload.wanted = False
        payload.data = None
        self._held -= payload.size
        self._release(stream, payload)

    def cancelled(self, stream: int) -> None:
        """The sender abandons this stream; raises RemoteProtocolError where it is not open."""
        self._forget(stream, self._streams.get(stream))

    def is_ours(self, stream: int) -> bool:
        """Whether the payload of ``stream`` comes to us."""
        return stream % 2 == self._parity

    def abandon_all(self) -> None:
        """Give back all memory; nothing is read after this."""
        self._streams.clear()
        self._waiting.clear()
        self._held = 0
        self._begin = self._end = 0
        self._next_frame()
        self._memory.begun.give_back_all()
        self._memory.granted.give_back_all()
        self._memory.mappings.clear()

    def check(self) -> None:
        """Raise LocalError where the books are wrong."""
        held = sum(p.size for p in self._streams.values() if p.wanted)
        window = max(RECEIVE_WINDOW_BYTES, INITIAL_CREDIT_BYTES)
        faults = (
            (not self.reading and self._end - self._begin < HEADER_BYTES, "there is nowhere to read to"),
            (held != self._held, "held bytes are miscounted"),
            (self._memory.begun.held != sum(p.begun for p in self._streams.values()), "begun is miscounted"),
            (self._memory.granted.held != sum(p.size for p in self._streams.values() if p.granted_whole),
             "granted is miscounted"),
            (any((p.begun or p.granted_whole) and not p.wanted for p in self._streams.values()),
             "memory for the unwanted"),
            (any(p.granted_whole for p in self._waiting.values()), "a wait for memory that is there"),
            (held > MAX_RECEIVE_BUFFER_BYTES, "too many bytes are held"),
            (len(self._streams) > MAX_OPEN_STREAMS, "too many streams are open"),
            (any(p.received >= p.size for p in self._streams.values()), "a payload is over its end"),
            (any(p.received > p.granted for p in self._streams.values()), "a payload is over its credit"),
            (any(p.granted - p.received > window for p in self._streams.values()), "credit over the window"),
        )  # fmt: skip
        for wrong, sentence in faults:
            if wrong:
                raise LocalError(f"receiving: {sentence}")

    def _begin_frame(self, header: Header) -> Arrival | None:
        """Any frame but one to pass on: what is there of its body is next in ``_frames``."""
        if not self.passing:
            _check_greeting(header)
        if header.kind is OPEN:
            self._check_open(header.stream)
        if header.kind is DATA:
            self._header = header
            self._begin_data(header)
            arrival = None
            while self._left and self._begin < self._end:
                arrival = self._data(header, self._move(self.reading))
            return arrival
        self._body = memoryview(bytearray(header.length))
        self.reading = self._body[self._move(self._body) :]
        if self.reading:
            self._header = header
            return None
        self._next_frame()
        return self._finish(header, self._body)

    def _filled_body(self, header: Header, count: int) -> Arrival | None:
        """More of the body of this frame is where it belongs."""
        if header.kind is DATA:
            return self._data(header, count)
        self.reading = self.reading[count:]
        if self.reading:
            return None
        self._next_frame()
        return self._finish(header, self._body)

    def _move(self, target: memoryview) -> int:
        """Move what is in ``_frames`` to the start of ``target``, as far as it goes; returns how much."""
        count = min(len(target), self._end - self._begin)
        target[:count] = self._frames[self._begin : self._begin + count]
        self._begin += count
        return count

    def _finish(self, header: Header, body: Buffer) -> Arrival:
        if header.kind is MESSAGE and header.number not in GREETINGS:
            return Deliver(decode_message(header.number, body), NO_BYTES)
        if header.kind is not OPEN:
            return Control(header, body)
        size, encoded = decode_open(header.number, body)
        if self._held + size > MAX_RECEIVE_BUFFER_BYTES:
            raise RemoteProtocolError(f"more than {MAX_RECEIVE_BUFFER_BYTES} bytes of payloads are open")
        message = decode_message(header.number, encoded)
        reserved = size if size < MAPPED_BYTES else INITIAL_CREDIT_BYTES
        refusal = ""
        if reserved < size and size > self._memory.granted.largest:
            refusal = f"this peer takes payloads of {self._memory.granted.largest} bytes at most"
        elif not self._memory.begun.take(reserved):
            refusal = "this peer has no memory left for more payloads"
        self._streams[header.stream] = _Payload(
            message=message,
            size=size,
            granted=INITIAL_CREDIT_BYTES,
            begun=0 if refusal else reserved,
        )
        self._last_stream = header.stream
        self._held += size
        return Opened(header.stream, message, size, refusal)

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
            payload.data = self._memory.mappings.allocate(min(payload.size, FIRST_BYTES))
        elif payload.received == len(payload.data):
            whole = self._memory.mappings.allocate(payload.size)
            whole[: payload.received] = payload.data
            payload.data = whole
        self.reading = payload.data[payload.received : payload.received + self._left]

    def _data(self, header: Header, count: int) -> Arrival | None:
        payload = self._streams[header.stream]
        payload.received += count
        self.payload_received += count
        self._left -= count
        if self._left:
            self._aim(payload)
            return None
        self._next_frame()
        if payload.received == payload.size:
            return self._complete(header.stream, payload)
        return Progress(header.stream, self._due(header.stream, payload))

    def _complete(self, stream: int, payload: _Payload) -> Arrival | None:
        self._forget(stream, payload)
        if payload.data is None or not payload.wanted:
            return None
        return Deliver(payload.message, payload.data)

    def _due(self, stream: int, payload: _Payload) -> int:
        window = payload.granted - payload.received
        if not payload.wanted or payload.granted >= payload.size or window > RECEIVE_WINDOW_BYTES // 2:
            return 0
        return self._grant(payload) if self._admit(stream, payload) else 0

    def _grant(self, payload: _Payload) -> int:
        window = payload.granted - payload.received
        grant = min(RECEIVE_WINDOW_BYTES - window, payload.size - payload.granted)
        payload.granted += grant
        return grant

    def _admit(self, stream: int, payload: _Payload) -> bool:
        """Whether all of ``payload`` has its place in memory; else it waits for that behind older ones."""
        if payload.granted_whole or payload.begun == payload.size:
            return True
        self._waiting.setdefault(stream, payload)
        if next(iter(self._waiting)) != stream or not self._memory.granted.take(payload.size):
            return False
        self._release(stream, payload)
        payload.granted_whole = True
        return True

    def _release(self, stream: int, payload: _Payload) -> None:
        """Give back what ``payload`` holds."""
        self._waiting.pop(stream, None)
        self._memory.begun.give_back(payload.begun)
        payload.begun = 0
        if payload.granted_whole:
            self._memory.granted.give_back(payload.size)
            payload.granted_whole = False

    def _next_frame(self) -> None:
        """Another frame begins; what is there of a header goes to the start, with room behind it."""
        self._header = None
        left = self._end - self._begin
        if left < HEADER_BYTES:
            self._frames[:left] = self._frames[self._begin : self._end]
            self._begin, self._end = 0, left
            self.reading = self._frames[left:] if left else self._frames
        else:
            self.reading = self._frames[:0]

    def _forget(self, stream: int, payload: _Payload | None) -> None:
        if payload is None:
            raise RemoteProtocolError(f"stream {stream} is not open")
        del self._streams[stream]
        if payload.wanted:
            self._held -= payload.size
            self._release(stream, payload)


def _check_greeting(header: Header) -> None:
    if header.kind is CLOSE:
        return
    if header.kind is not MESSAGE or header.number not in GREETINGS:
        raise RemoteProtocolError("something was sent before the hellos were accepted")
    if header.length > MAX_HELLO_BYTES:
        raise RemoteProtocolError(f"a hello of {header.length} bytes is over the limit")
