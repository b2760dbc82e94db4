"""Two sessions that talk to each other through memory, for tests of what they say and when."""

from collections.abc import Iterator

from swarm.protocol.session import Session
from swarm.protocol.session_budget import LinkMemory, NodeMemory
from swarm.protocol.session_events import Action, Event, Received, Welcome, Writable, Write
from swarm.protocol.session_flight import Flight
from swarm.protocol.session_meters import HEARTBEAT_SECONDS
from swarm.testing.hellos import plain_accept, plain_hello
from swarm.wire.frames import Buffer


class EndlessFlight(Flight):
    """That of a path on which any amount may be under way; nothing of it is measured."""

    def __init__(self) -> None:
        super().__init__()
        self.limit = 2**40

    def has_room(self, total: int) -> bool:
        """Always."""
        return True

    def is_ping_due(self, total: int) -> bool:
        """Never."""
        return False


def widen(session: Session) -> None:
    """Let any amount of what ``session`` sends be under way."""
    session._traffic.flight = EndlessFlight()  # noqa: SLF001 - no program needs to do this


def pour(data: Buffer, session: Session, *, piece: int = 2**30) -> Iterator[Received]:
    """Put ``data`` where ``session`` reads, at most ``piece`` bytes at a time. It must handle each event."""
    rest = memoryview(bytes(data))
    while session.state != "ended" and (rest or session.inbox.has_more):
        size = 0 if session.inbox.has_more else min(piece, len(rest), len(session.inbox.reading))
        session.inbox.reading[:size] = rest[:size]
        rest = rest[size:]
        yield Received(size)


class SessionEnd:
    """One end: a session, the actions that it asked for (writes apart), and the bytes it has written."""

    def __init__(
        self,
        *,
        dialed: bool,
        now: float,
        heartbeat: float = HEARTBEAT_SECONDS,
        memory: LinkMemory | None = None,
    ) -> None:
        self.session = Session(plain_hello(), dialed=dialed, now=now, heartbeat=heartbeat, memory=memory)
        self.actions: list[Action] = []
        self.wire = bytearray()

    def feed(self, event: Event, now: float) -> list[Action]:
        """Give it an event; returns what it asked for, writes apart."""
        new = self.session.handle(event, now=now)
        for action in new:
            if isinstance(action, Write):
                self.wire += action.head
                self.wire += action.body
        rest: list[Action] = [action for action in new if not isinstance(action, Write)]
        self.actions += rest
        self.session.check()
        return rest

    def write(self, now: float, *, unsent: int = 0) -> bytes:
        """Let it write once; returns the bytes, which are on the wire too."""
        before = len(self.wire)
        self.feed(Writable(unsent), now)
        return bytes(self.wire[before:])

    def write_all(self, now: float) -> None:
        """Let it write until it has nothing more to say."""
        while self.session.wants_to_write:
            self.write(now)

    def receive(self, data: bytes | bytearray, now: float) -> list[Action]:
        """Give it bytes from the other side; returns what it asked for."""
        return [action for event in pour(data, self.session) for action in self.feed(event, now)]


class SessionPair:
    """Two ends; ``near`` has dialled. ``memory`` is that of the node at the far end."""

    def __init__(
        self,
        *,
        now: float = 0.0,
        heartbeat: float = HEARTBEAT_SECONDS,
        memory: NodeMemory | None = None,
    ) -> None:
        self.near = SessionEnd(dialed=True, now=now, heartbeat=heartbeat)
        share = memory.link() if memory is not None else None
        self.far = SessionEnd(dialed=False, now=now, heartbeat=heartbeat, memory=share)

    def carry(self, now: float) -> None:
        """Carry bytes both ways until both are silent."""
        ends = ((self.near, self.far), (self.far, self.near))
        while any(end.session.wants_to_write or end.wire for end, _ in ends):
            for end, other in ends:
                end.write_all(now)
                data, end.wire = end.wire, bytearray()
                other.receive(data, now)

    def rise(self, now: float) -> None:
        """Exchange hellos, accept both, and forget the actions that took."""
        self.carry(now)
        for end in (self.near, self.far):
            end.feed(Welcome(plain_accept()), now)
        self.carry(now)
        self.near.actions.clear()
        self.far.actions.clear()
