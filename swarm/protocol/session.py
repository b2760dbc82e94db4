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

from typing import Final, Literal, assert_never

from swarm.errors import LinkLostError, LocalError, RemoteProtocolError
from swarm.protocol.session_arrivals import Control
from swarm.protocol.session_budget import LinkMemory, NodeMemory
from swarm.protocol.session_events import (
    Abandon,
    Action,
    Close,
    Deliver,
    Down,
    End,
    Ended,
    Event,
    Judge,
    Lost,
    Pass,
    Post,
    Probe,
    Received,
    Refuse,
    SessionStatistics,
    Tick,
    Up,
    Welcome,
    Withdraw,
    Writable,
)
from swarm.protocol.session_greeting import Greeting
from swarm.protocol.session_meters import HEARTBEAT_SECONDS
from swarm.protocol.session_receiving import TRAFFIC, Inbox
from swarm.protocol.session_traffic import Traffic
from swarm.wire.frames import CLOSE, MESSAGE, CloseCode, close_frame, decode_sentence, message_frame
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Accept, Hello, Refusal
from swarm.wire.messages.registry import decode_message
from swarm.wire.text import printable

State = Literal["greeting", "up", "closing", "ended"]

HELLO_SECONDS: Final = 10.0
"""The hellos must be accepted within this time."""
CLOSING_SECONDS: Final = 2.0
"""The last words must be written within this time."""


class Session:
    """One link. ``handle`` is the only mutator; see the module for the states."""

    def __init__(
        self,
        hello: Hello,
        *,
        dialed: bool,
        now: float,
        heartbeat: float = HEARTBEAT_SECONDS,
        memory: LinkMemory | None = None,
    ) -> None:
        """``memory`` is the link's share of its node's; without it, the link has a node's to itself."""
        self.greeting = Greeting(hello)
        self._state: State = "greeting"
        memory = memory or NodeMemory().link()
        self._traffic = Traffic(dialed=dialed, heartbeat=heartbeat, now=now, memory=memory)
        self.inbox: Final[Inbox] = self._traffic.inbox
        """Knows where the next received bytes belong, and whether there is more to take first."""
        self._end: End | None = None
        self._state_deadline = now + HELLO_SECONDS
        self._since = now
        self._traffic.outbox.control(message_frame(hello))

    @property
    def wants_to_write(self) -> bool:
        """Whether :class:`Writable` would give something to write, or end the session."""
        match self._state:
            case "up":
                return self._traffic.wants_to_write
            case "greeting":
                return self._traffic.outbox.has_control
            case "closing":
                return True
            case "ended":
                return False

    @property
    def wants_control(self) -> bool:
        """Whether what is written next is control, which no cap may hold up."""
        return self._state != "up" or self._traffic.wants_control

    @property
    def bulk_at(self) -> float:
        """From when on the next bulk frame may go, at the pace of the path."""
        return self._traffic.flight.bulk_at

    @property
    def bulk_frame_bytes(self) -> int:
        """Payload bytes of one bulk frame at the measured rate."""
        return self._traffic.bulk_frame_bytes

    def limit_frames(self, limit: int) -> None:
        """Let no bulk frame have more than ``limit`` payload bytes, unless that is less than the shortest."""
        self._traffic.frame_limit = limit

    @property
    def unsent_limit(self) -> int:
        """Bytes that the system may hold without being able to transmit them, at the measured rate."""
        return self._traffic.up_meter.unsent_bytes

    @property
    def deadline(self) -> float:
        """When a :class:`Tick` is due."""
        match self._state:
            case "up":
                return self._traffic.deadline
            case "greeting" | "closing":
                return self._state_deadline
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
        that makes no sense. ``now`` is of no account to a :class:`Pass`.
        """
        if type(event) is Received:
            return self._on_received(event.count, now)
        if type(event) is Pass:
            return self._traffic.pass_on(event.message) if self._state == "up" else []
        if type(event) is Writable:
            return self._on_writable(event.unsent, now)
        match event:
            case Post() | Withdraw() | Abandon() | Probe():
                return self._on_request(event)
            case Tick():
                return self._on_tick(now)
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
        return self._traffic.statistics(state=self._state, since=self._since)

    def check(self) -> None:
        """Raise LocalError where an invariant is broken."""
        self.greeting.check()
        self._traffic.check()
        is_over = self._state in {"closing", "ended"}
        agreed = self.greeting.agreed is not None
        faults = (
            (self._state == "up" and not agreed, "up, but not accepted by both"),
            (self._state == "greeting" and agreed, "accepted by both, but not up"),
            (self._state != "up" and self._traffic.payloads > 0, "payloads where there cannot be any"),
            ((self._end is not None) != is_over, "ending without a reason"),
        )
        for wrong, sentence in faults:
            if wrong:
                raise LocalError(f"session {self}: {sentence}")

    def __str__(self) -> str:
        outcome = f", {self._end}" if self._end else ""
        traffic = self._traffic
        return f"{self._state}, {len(traffic.outbox)} payloads out, {len(traffic.inbox)} in{outcome}"

    # What comes from the other side.

    def _on_received(self, count: int, now: float) -> list[Action]:
        traffic = self._traffic
        if self._state in {"closing", "ended"}:
            return []
        traffic.liveness.last_heard = now
        try:
            arrival = self.inbox.filled(count)
            if type(arrival) is Deliver and not arrival.payload:
                return [arrival]
            if arrival is None:
                return []
            if type(arrival) is Control:
                return self._on_control(arrival, now)
            return traffic.take(arrival, now)
        except RemoteProtocolError as error:
            return self._on_close(Close(CloseCode.PROTOCOL, str(error)), now)

    def _on_control(self, control: Control, now: float) -> list[Action]:
        header, body = control.header, control.body
        if header.kind is MESSAGE:
            return self._on_greeting(decode_message(header.number, body), now)
        if header.kind is CLOSE:
            code = CloseCode(header.number).name.lower()
            return self._finish(End(by="them", code=code, sentence=decode_sentence(body)))
        return self._traffic.control(header, body, now)

    def _on_greeting(self, message: Message, now: float) -> list[Action]:
        match message:
            case Hello() | Accept():
                self.greeting.take(message)
                return [Judge(message)] if isinstance(message, Hello) else self._rise(now)
            case Refusal():
                if self.greeting.accept is not None:
                    raise RemoteProtocolError("a refusal after the hello was accepted")
                return self._finish(
                    End(by="them", code=message.code, sentence=message.sentence, refusal=True)
                )
            case _:
                raise LocalError(f"{type(message).__name__} is no greeting")

    # What this side wants.

    def _on_request(self, event: Post | Withdraw | Abandon | Probe) -> list[Action]:
        if self._state == "up":
            self._traffic.request(event)
        elif isinstance(event, Post):
            raise LinkLostError(str(self._end) if self._end else "is not up yet")
        return []

    def _on_judged(self, event: Welcome | Refuse, now: float) -> list[Action]:
        if self._state != "greeting":
            return []
        self.greeting.expect_verdict()
        if isinstance(event, Refuse):
            sentence = printable(event.sentence)
            self._traffic.outbox.control(message_frame(Refusal(code=event.code, sentence=sentence)))
            return self._begin_closing(End(by="us", code=event.code, sentence=sentence, refusal=True), now)
        self.greeting.accepted = True
        self._traffic.outbox.control(message_frame(event.accept))
        return self._rise(now)

    def _on_close(self, event: Close, now: float) -> list[Action]:
        if self._state in {"closing", "ended"}:
            return []
        sentence = printable(event.sentence)
        self._traffic.outbox.last_words(close_frame(event.code, sentence))
        return self._begin_closing(End(by="us", code=event.code.name.lower(), sentence=sentence), now)

    # What time and the channel bring.

    def _on_tick(self, now: float) -> list[Action]:
        if now < self.deadline:
            return []
        match self._state:
            case "greeting":
                return self._on_close(Close(CloseCode.FAULT, f"no hello within {HELLO_SECONDS:.0f} s"), now)
            case "closing":
                return self._finish(None)
            case "up":
                return self._on_tick_up(now)
            case "ended":
                return []
            case _:
                assert_never(self._state)

    def _on_tick_up(self, now: float) -> list[Action]:
        liveness = self._traffic.liveness
        if liveness.tick(now) == "dead":
            silence = f"was silent for {now - liveness.last_heard:.1f} s"
            return self._finish(End(by="network", code="silent", sentence=silence))
        idle = self._traffic.look(now) if now >= self._traffic.look_due else ""
        return self._on_close(Close(CloseCode.FAULT, idle), now) if idle else []

    def _on_writable(self, unsent: int, now: float) -> list[Action]:
        match self._state:
            case "up":
                return self._traffic.write(unsent, now)
            case "greeting":
                return self._traffic.write_control()
            case "closing":
                return self._traffic.write_control() or self._finish(None)
            case "ended":
                return []

    # Changes of state.

    def _rise(self, now: float) -> list[Action]:
        accept = self.greeting.agreed
        if accept is None:
            return []
        self._state = "up"
        self.inbox.passing = TRAFFIC
        self._since = now
        self._traffic.liveness.begin(now)
        return [Up(accept)]

    def _begin_closing(self, end: End, now: float) -> list[Action]:
        self._state = "closing"
        self._state_deadline = now + CLOSING_SECONDS
        return self._fall(end)

    def _finish(self, end: End | None) -> list[Action]:
        """Nothing is left to do; ``end`` is why, unless that is known."""
        if self._state == "ended":
            return []
        actions = self._fall(end) if self._end is None and end is not None else []
        self._state = "ended"
        self._traffic.end()
        return [*actions, Ended()]

    def _fall(self, end: End) -> list[Action]:
        self._end = end
        self._traffic.abandon()
        return [Down(end)]
