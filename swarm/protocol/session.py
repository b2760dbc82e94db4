"""The session: the decisions of one link between two peers, from the hellos to the end (decision D3).

::

    greeting   hellos are exchanged and judged; each side answers Accept or Refusal
    up         both have accepted: messages and payloads flow
    closing    a Refusal or CLOSE waits to be written; what comes is not looked at
    ended      nothing is left to do

The machine does no I/O. The adapter reads bytes into ``reading`` and says how many came; says when the
channel takes more, and gets the bytes to write; says when the deadline has passed. Everything else is an
action. Bytes that break the protocol end the session with a CLOSE that says so, never with an exception.
"""

from collections.abc import Sequence
from typing import Final, Literal, assert_never

from swarm.errors import LinkLostError, LocalError, RemoteProtocolError
from swarm.protocol.session_events import (
    Abandon,
    Action,
    Answered,
    Close,
    Deliver,
    Down,
    End,
    Ended,
    Event,
    Judge,
    Lost,
    Offered,
    Post,
    Probe,
    Received,
    Refuse,
    Sent,
    SessionStatistics,
    Tick,
    Unwanted,
    Up,
    Welcome,
    Withdraw,
    Writable,
    Write,
)
from swarm.protocol.session_meters import (
    HEARTBEAT_SECONDS,
    Liveness,
    RateMeter,
)
from swarm.protocol.session_receiving import Arrival, Complete, Control, Inbox, Opened, Progress
from swarm.protocol.session_sending import Outbox
from swarm.wire.frames import (
    CancelCode,
    CloseCode,
    Kind,
    cancel_frame,
    close_frame,
    decode_credit,
    decode_sentence,
    message_frame,
    printable,
)
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Accept, Hello, Refusal
from swarm.wire.messages.registry import decode_message

State = Literal["greeting", "up", "closing", "ended"]

HELLO_SECONDS: Final = 10.0
"""The hellos must be accepted within this time."""
CLOSING_SECONDS: Final = 2.0
"""The last words must be written within this time."""

_EMPTY: Final = memoryview(b"")


class Session:
    """One link. ``handle`` is the only mutator; see the module for the states."""

    def __init__(
        self, hello: Hello, *, dialed: bool, now: float, heartbeat: float = HEARTBEAT_SECONDS
    ) -> None:
        self.hello = hello
        self.peer_hello: Hello | None = None
        self.version = 0
        """The protocol version that both speak; 0 before they agree."""
        self._state: State = "greeting"
        self._inbox = Inbox(dialed=dialed)
        self._outbox = Outbox(dialed=dialed)
        self._liveness = Liveness(heartbeat=heartbeat, now=now)
        self._up_meter, self._down_meter = RateMeter(), RateMeter()
        self._accepted = False
        self._accept: Accept | None = None
        self._end: End | None = None
        self._state_deadline = now + HELLO_SECONDS
        self._since = now
        self._sent = 0
        self._received = 0
        self._outbox.control(message_frame(hello))

    @property
    def reading(self) -> memoryview:
        """Where the next received bytes belong; never empty."""
        return self._inbox.reading

    @property
    def wants_to_write(self) -> bool:
        """Whether :class:`Writable` would give something to write, or end the session."""
        if self._state == "ended":
            return False
        return (
            self._outbox.has_control
            or self._state == "closing"
            or (self._state == "up" and (self._liveness.ping_wanted or self._outbox.has_bulk))
        )

    @property
    def bulk_frame_bytes(self) -> int:
        """Payload bytes of one bulk frame at the measured rate."""
        return self._up_meter.frame_bytes

    @property
    def unsent_limit(self) -> int:
        """Bytes that the system may hold without being able to transmit them, at the measured rate."""
        return self._up_meter.unsent_bytes

    @property
    def deadline(self) -> float:
        """When a :class:`Tick` is due."""
        match self._state:
            case "greeting" | "closing":
                return self._state_deadline
            case "up":
                return self._liveness.deadline
            case "ended":
                return float("inf")

    @property
    def state(self) -> State:
        """The state; see the module."""
        return self._state

    @property
    def end(self) -> End | None:
        """Why the session ended, or is about to."""
        return self._end

    def handle(self, event: Event, *, now: float) -> list[Action]:
        """Take one event; returns what to do, in order.

        Raises LinkLostError for a :class:`Post` when the link ends or has ended, LocalError for an event
        that makes no sense.
        """
        match event:
            case Received():
                return self._on_received(event.count, now)
            case Writable():
                return self._on_writable(event.unsent, now)
            case Tick():
                return self._on_tick(now)
            case Post() | Withdraw() | Abandon() | Probe():
                return self._on_request(event)
            case Welcome() | Refuse():
                return self._on_judged(event, now)
            case Close():
                return self._on_close(event, now)
            case Lost():
                refusal = bool(event.code)
                return self._finish(
                    End(by="network", code=event.code or "lost", sentence=event.sentence, refusal=refusal)
                )
            case _:
                assert_never(event)

    def statistics(self) -> SessionStatistics:
        """Where the link stands."""
        return SessionStatistics(
            state=self._state,
            bytes_sent=self._sent,
            bytes_received=self._received,
            payload_sent=self._outbox.payload_sent,
            payload_received=self._inbox.payload_received,
            rtt=self._liveness.rtt,
            rate_up=self._up_meter.rate,
            rate_down=self._down_meter.rate,
            since=self._since,
            last_heard=self._liveness.last_heard,
            sending=len(self._outbox),
            receiving=len(self._inbox),
        )

    def check(self) -> None:
        """Raise LocalError where an invariant is broken."""
        self._inbox.check()
        self._outbox.check()
        agreed = self._accepted and self._accept is not None
        faults = (
            (self._state == "up" and not agreed, "up, but not accepted by both"),
            (self._state == "greeting" and agreed, "accepted by both, but not up"),
            (self._state == "greeting" and bool(len(self._outbox) or len(self._inbox)), "payloads too early"),
            ((self._end is not None) != (self._state in {"closing", "ended"}), "ending without a reason"),
            (self._accept is not None and self.peer_hello is None, "accepted without a hello"),
            (self._state in {"closing", "ended"} and bool(len(self._outbox) or len(self._inbox)),
             "payloads are kept for nothing"),
        )  # fmt: skip
        for wrong, sentence in faults:
            if wrong:
                raise LocalError(f"session {self}: {sentence}")

    def __str__(self) -> str:
        outcome = f", {self._end}" if self._end else ""
        return f"{self._state}, {len(self._outbox)} payloads out, {len(self._inbox)} in{outcome}"

    # What comes from the other side.

    def _on_received(self, count: int, now: float) -> list[Action]:
        self._received += count
        self._liveness.heard(now)
        if self._state not in {"greeting", "up"}:
            return []
        try:
            arrival = self._inbox.filled(count, up=self._state == "up")
            return [] if arrival is None else self._on_arrival(arrival, now)
        except RemoteProtocolError as error:
            return self._on_close(Close(CloseCode.PROTOCOL, str(error)), now)

    def _on_arrival(self, arrival: Arrival, now: float) -> list[Action]:
        match arrival:
            case Progress():
                if arrival.grant:
                    self._outbox.grant(arrival.stream, arrival.grant)
                self._down_meter.observe(self._inbox.payload_received, busy=True, now=now)
                return []
            case Complete():
                self._down_meter.observe(self._inbox.payload_received, busy=len(self._inbox) > 0, now=now)
                return [Deliver(arrival.message, arrival.payload)]
            case Opened():
                self._down_meter.observe(self._inbox.payload_received, busy=True, now=now)
                return [Offered(arrival.stream, arrival.message, arrival.size)]
            case Control():
                return self._on_control(arrival, now)
            case _:
                assert_never(arrival)

    def _on_control(self, control: Control, now: float) -> list[Action]:
        header, body = control.header, control.body
        match header.kind:
            case Kind.MESSAGE:
                return self._on_message(decode_message(header.number, body), now)
            case Kind.CREDIT:
                self._outbox.credited(header.stream, decode_credit(body))
                return []
            case Kind.CANCEL:
                return self._on_cancel(header.stream, decode_sentence(body))
            case Kind.PING:
                self._outbox.pong(bytes(body))
                return []
            case Kind.PONG:
                return [Answered()] if self._liveness.pong(bytes(body), now) else []
            case Kind.CLOSE:
                code = CloseCode(header.number).name.lower()
                return self._finish(End(by="them", code=code, sentence=decode_sentence(body)))
            case Kind.OPEN | Kind.DATA:
                raise LocalError(f"{header.kind.name} is not a control frame")
            case _:
                assert_never(header.kind)

    def _on_message(self, message: Message, now: float) -> list[Action]:
        match message:
            case Hello():
                if self.peer_hello is not None:
                    raise RemoteProtocolError("a second hello")
                self.peer_hello = message
                return [Judge(message)]
            case Accept():
                return self._on_accept(message, now)
            case Refusal():
                if self._state == "up" or self._accept is not None:
                    raise RemoteProtocolError("a refusal after the hello was accepted")
                sentence = printable(message.sentence)
                return self._finish(End(by="them", code=message.code, sentence=sentence, refusal=True))
            case _:
                return [Deliver(message, _EMPTY)]

    def _on_accept(self, accept: Accept, now: float) -> list[Action]:
        if self.peer_hello is None or self._accept is not None:
            raise RemoteProtocolError("an accept out of turn")
        if accept.version != min(self.hello.newest, self.peer_hello.newest):
            raise RemoteProtocolError(f"protocol version {accept.version} was not the one to agree on")
        self._accept = accept
        return self._rise(now)

    def _on_cancel(self, stream: int, sentence: str) -> list[Action]:
        if self._inbox.is_ours(stream):
            self._inbox.cancelled(stream)
            return []
        key = self._outbox.unwanted(stream)
        return [Unwanted(key, sentence)] if key else []

    # What this side wants.

    def _on_request(self, event: Post | Withdraw | Abandon | Probe) -> list[Action]:
        if self._state != "up":
            if isinstance(event, Post):
                raise LinkLostError(str(self._end) if self._end else "the link is not up yet")
            return []
        match event:
            case Post():
                self._outbox.post(event.key, event.message, event.payload)
            case Withdraw():
                self._outbox.withdraw(event.key)
            case Abandon():
                self._inbox.abandon(event.stream)
                self._outbox.control(cancel_frame(event.stream, CancelCode.REFUSED, event.sentence))
            case Probe():
                self._liveness.probe()
            case _:
                assert_never(event)
        return []

    def _on_judged(self, event: Welcome | Refuse, now: float) -> list[Action]:
        if self._state != "greeting":
            return []
        if self.peer_hello is None or self._accepted:
            raise LocalError("a hello was judged that did not come, or twice")
        if isinstance(event, Refuse):
            sentence = printable(event.sentence)
            self._outbox.control(message_frame(Refusal(code=event.code, sentence=sentence)))
            return self._begin_closing(End(by="us", code=event.code, sentence=sentence, refusal=True), now)
        self._accepted = True
        self._outbox.control(message_frame(event.accept))
        return self._rise(now)

    def _on_close(self, event: Close, now: float) -> list[Action]:
        if self._state in {"closing", "ended"}:
            return []
        sentence = printable(event.sentence)
        self._outbox.control(close_frame(event.code, sentence))
        return self._begin_closing(End(by="us", code=event.code.name.lower(), sentence=sentence), now)

    # What time and the channel bring.

    def _on_tick(self, now: float) -> list[Action]:
        if now < self.deadline:
            return []
        match self._state:
            case "greeting":
                return self._on_close(Close(CloseCode.FAULT, f"no hello within {HELLO_SECONDS:.0f} s"), now)
            case "closing":
                return self._silent("did not take our last words")
            case "up":
                if self._liveness.tick(now) == "dead":
                    return self._silent(f"was silent for {now - self._liveness.last_heard:.1f} s")
                return []
            case "ended":
                return []
            case _:
                assert_never(self._state)

    def _on_writable(self, unsent: int, now: float) -> list[Action]:
        if self._state != "up":
            return self._write_last_words()
        outbox, liveness, meter = self._outbox, self._liveness, self._up_meter
        liveness.sample(now)
        if outbox.has_control or liveness.ping_wanted:
            write, sent = outbox.next_control(liveness.ping(now) if liveness.ping_wanted else None)
        else:
            delivered = max(outbox.payload_sent - unsent, 0)
            write, sent = outbox.next_bulk(meter.frame_bytes)
            meter.observe(delivered, busy=outbox.has_bulk, now=now)
        return self._written(write, sent)

    def _write_last_words(self) -> list[Action]:
        write, sent = self._outbox.next_control(None)
        if write is None and self._state == "closing":
            return self._silent("")
        return self._written(write, sent)

    def _written(self, write: Write | None, sent: Sequence[Sent]) -> list[Action]:
        if write is None:
            return []
        self._sent += len(write.head) + len(write.body)
        return [write, *sent]

    # Changes of state.

    def _silent(self, sentence: str) -> list[Action]:
        return self._finish(End(by="network", code="silent", sentence=sentence))

    def _rise(self, now: float) -> list[Action]:
        if not self._accepted or self._accept is None:
            return []
        self._state = "up"
        self._since = now
        self.version = self._accept.version
        self._liveness.heard(now)
        return [Up(self._accept)]

    def _begin_closing(self, end: End, now: float) -> list[Action]:
        self._state = "closing"
        self._state_deadline = now + CLOSING_SECONDS
        return self._fall(end)

    def _finish(self, end: End) -> list[Action]:
        if self._state == "ended":
            return []
        actions = self._fall(end) if self._end is None else []
        self._state = "ended"
        return [*actions, Ended()]

    def _fall(self, end: End) -> list[Action]:
        self._end = end
        self._outbox.abandon()
        self._inbox.abandon_all()
        return [Down(end)]
