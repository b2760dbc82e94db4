"""The traffic of a session: frames in and out, signs of life and rates; all but the session's own states."""

from typing import Final, assert_never

from swarm.errors import LocalError
from swarm.protocol.session_arrivals import Opened, Progress
from swarm.protocol.session_budget import LinkMemory
from swarm.protocol.session_events import (
    NO_BYTES,
    Abandon,
    Action,
    Answered,
    Deliver,
    Offered,
    Post,
    Probe,
    Sent,
    SessionStatistics,
    Unwanted,
    Vain,
    Withdraw,
    Write,
)
from swarm.protocol.session_flight import PINGS_PER_FLIGHT, Flight
from swarm.protocol.session_meters import Liveness, RateMeter
from swarm.protocol.session_receiving import Inbox
from swarm.protocol.session_sending import Outbox
from swarm.wire.frames import (
    Buffer,
    CancelCode,
    Header,
    Kind,
    cancel_frame,
    decode_credit,
    decode_sentence,
    message_frame,
    ping_frame,
)
from swarm.wire.limits import MAX_DATA_FRAME_BYTES, MIN_DATA_FRAME_BYTES
from swarm.wire.messages.base import Message

LOOK_SECONDS: Final = 10.0
"""How often a link looks whether what should move has moved. Looks are counted when they are due, one at a
time, so that this machine's own sleep never makes the other side look idle."""
UNREAD_LOOKS: Final = 3
"""Looks without a byte read by the other side, while some wait, after which it is given up."""
MEMORY_SECONDS: Final = 0.1
"""How often a stream that waits for memory looks for some: other links give it back."""


class Traffic:
    """What flows over one link, and what it tells about the path."""

    def __init__(self, *, dialed: bool, heartbeat: float, now: float, memory: LinkMemory) -> None:
        self.inbox = Inbox(dialed=dialed, memory=memory)
        self.outbox = Outbox(dialed=dialed, share=memory.control)
        self.liveness = Liveness(heartbeat=heartbeat, now=now)
        self.up_meter = RateMeter()
        self.down_meter = RateMeter()
        self.flight = Flight()
        self.frame_limit = MAX_DATA_FRAME_BYTES
        self.bytes_sent = 0
        self._next_look = now + LOOK_SECONDS
        self._next_memory = now
        self._sent_before = 0
        self._unread = 0

    @property
    def payloads(self) -> int:
        """Payloads that are not wholly sent or received."""
        return len(self.outbox) + len(self.inbox)

    @property
    def wants_to_write(self) -> bool:
        """Whether :meth:`write` would give something."""
        outbox = self.outbox
        if outbox.has_control or self.liveness.ping_wanted:
            return True
        if not outbox.has_bulk:
            return False
        flight, total = self.flight, self.bytes_sent
        return flight.has_room(total) or flight.is_stuck(total)

    @property
    def wants_control(self) -> bool:
        """Whether :meth:`write` would give control."""
        return self.outbox.has_control or self.liveness.ping_wanted or self._is_stuck

    @property
    def bulk_frame_bytes(self) -> int:
        """Payload bytes of one bulk frame at the measured rate: several of them are under way."""
        limit = min(self.flight.limit // PINGS_PER_FLIGHT, self.frame_limit)
        return min(self.up_meter.frame_bytes, max(limit, MIN_DATA_FRAME_BYTES))

    @property
    def _is_stuck(self) -> bool:
        return self.outbox.has_bulk and self.flight.is_stuck(self.bytes_sent)

    @property
    def deadline(self) -> float:
        """When a look is due, or a sign of life."""
        return min(self.liveness.deadline, self.look_due)

    @property
    def look_due(self) -> float:
        """When :meth:`look` is due."""
        if self.outbox.overflowed:
            return 0.0
        return min(self._next_look, self._next_memory) if self.inbox.waits_for_memory else self._next_look

    def look(self, now: float) -> str:
        """See to what moves, and what does not; why the link is to end: empty while all is well."""
        if self.outbox.overflowed:
            return "too much waits to be read"
        if now >= self._next_memory:
            self._next_memory = now + MEMORY_SECONDS
            for progress in self.inbox.readmit():
                self.outbox.grant(progress.stream, progress.grant)
        if now < self._next_look:
            return ""
        self._next_look = now + LOOK_SECONDS
        has_more = self.wants_control or self.outbox.has_bulk
        waiting = has_more and self.bytes_sent == self._sent_before
        self._unread = self._unread + 1 if waiting else 0
        self._sent_before = self.bytes_sent
        if self._unread >= UNREAD_LOOKS:
            return f"nothing was read for {UNREAD_LOOKS * LOOK_SECONDS:.0f} s"
        return self.inbox.look(now)

    def take(self, arrival: Opened | Progress | Deliver, now: float) -> list[Action]:
        """A payload begins, goes on or is complete."""
        inbox = self.inbox
        self.down_meter.observe(inbox.payload_received, busy=len(inbox) > 0, now=now)
        match arrival:
            case Progress():
                if arrival.grant:
                    self.outbox.grant(arrival.stream, arrival.grant)
                return []
            case Deliver():
                return [arrival]
            case Opened():
                if arrival.refusal:
                    self.request(Abandon(arrival.stream, arrival.refusal))
                    return []
                return [Offered(arrival.stream, arrival.message, arrival.size)]
            case _:
                assert_never(arrival)

    def control(self, header: Header, body: Buffer, now: float) -> list[Action]:
        """A frame that keeps the traffic going; raises RemoteProtocolError."""
        match header.kind:
            case Kind.CREDIT:
                self.outbox.credited(header.stream, decode_credit(body))
                return []
            case Kind.CANCEL:
                return self._cancelled(header.stream, decode_sentence(body))
            case Kind.PING:
                self.flight.way_back.heard(self.liveness.sent_at(bytes(body)), now)
                self.outbox.pong(bytes(body))
                return []
            case Kind.PONG:
                return self._answered(bytes(body), now)
            case Kind.MESSAGE | Kind.OPEN | Kind.DATA | Kind.CLOSE:
                raise LocalError(f"{header.kind.name} is no frame of the traffic")
            case _:
                assert_never(header.kind)

    def pass_on(self, message: Message) -> list[Action]:
        """A message, unless something is before it; raises LocalError for one that no peer may send."""
        if self.liveness.ping_wanted or not self.outbox.is_idle:
            return []
        frame = message_frame(message)
        self.bytes_sent += len(frame)
        return [Write(frame, NO_BYTES)]

    def request(self, event: Post | Withdraw | Abandon | Probe) -> None:
        """What else this side wants."""
        match event:
            case Post():
                self.outbox.post(event.key, event.message, event.payload)
            case Withdraw():
                self.outbox.withdraw(event.key)
            case Abandon():
                self.inbox.abandon(event.stream)
                self.outbox.control(cancel_frame(event.stream, CancelCode.REFUSED, event.sentence))
            case Probe():
                self.liveness.probe()
            case _:
                assert_never(event)

    def write(self, unsent: int, now: float) -> list[Action]:
        """The next bytes for a channel that still holds ``unsent``. Control first, then bulk in turns."""
        outbox, liveness, meter = self.outbox, self.liveness, self.up_meter
        if self.wants_control:
            wanted = liveness.ping_wanted or self._is_stuck
            return self._written(*outbox.next_control(self._ping(now) if wanted else None))
        if not self.flight.has_room(self.bytes_sent):
            return []
        delivered = max(outbox.payload_sent - unsent, 0)
        ping = b""
        if outbox.has_bulk and self.flight.is_ping_due(self.bytes_sent):
            ping = ping_frame(self._ping(now))
        write, sent = outbox.next_bulk(self.bulk_frame_bytes)
        meter.observe(delivered, busy=outbox.has_bulk, now=now)
        if write is not None and ping:
            write = Write(ping + write.head, write.body)
        actions = self._written(write, sent)
        self.flight.wrote(self.bytes_sent, more=outbox.has_bulk, now=now)
        return actions

    def _ping(self, now: float) -> bytes:
        """The token of a ping that goes out now."""
        token = self.liveness.ping(now)
        self.flight.pinged(token, self.bytes_sent, now)
        return token

    def write_control(self) -> list[Action]:
        """The next control frames: for a link that is not up."""
        return self._written(*self.outbox.next_control(None))

    def abandon(self) -> None:
        """Forget all payloads, and give their memory back."""
        self.outbox.abandon()
        self.inbox.abandon_all()

    def end(self) -> None:
        """Nothing is written any more."""
        self.outbox.forget_control()

    def statistics(self, *, state: str, since: float) -> SessionStatistics:
        """Where the link stands, with the session's state and the time at which it came up."""
        return SessionStatistics(
            state=state,
            bytes_sent=self.bytes_sent,
            bytes_received=self.inbox.bytes_received,
            payload_sent=self.outbox.payload_sent,
            payload_received=self.inbox.payload_received,
            rtt=self.liveness.rtt,
            rate_up=self.up_meter.rate,
            rate_down=self.down_meter.rate,
            since=since,
            last_heard=self.liveness.last_heard,
            sending=len(self.outbox),
            receiving=len(self.inbox),
        )

    def check(self) -> None:
        """Raise LocalError where an invariant is broken."""
        self.inbox.check()
        self.outbox.check()

    def _answered(self, token: bytes, now: float) -> list[Action]:
        self.flight.answered(token, now)
        if not self.liveness.awaits(token):
            return [Vain("a ping was answered that nobody had sent")]
        return [Answered()] if self.liveness.pong(token, now) else []

    def _cancelled(self, stream: int, sentence: str) -> list[Action]:
        if self.inbox.is_ours(stream):
            self.inbox.cancelled(stream)
            return []
        key = self.outbox.unwanted(stream)
        return [Unwanted(key, sentence)] if key else []

    def _written(self, write: Write | None, sent: list[Sent]) -> list[Action]:
        if write is None:
            return []
        self.bytes_sent += len(write.head) + len(write.body)
        return [write, *sent]
