"""The in-memory twin of the network: the same interface, the same TLS, links and pool on top; no sockets.

A connection is two transports that hand bytes to each other through the event loop, each way with a bounded
window and a latency. On the manual loop of ``swarm.testing`` time is manual too. Faults: a connection can be
cut, or frozen so that nothing arrives and nobody is told.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, cast

from swarm.errors import FailureError, LinkLostError
from swarm.net.address import Address
from swarm.net.network import ANY_HOST, Listener, ProtocolFactory

WINDOW_BYTES: Final = 256 * 1024
"""Bytes that may be under way or unread at the far end, as in the buffers of a kernel."""
SEGMENT_BYTES: Final = 64 * 1024
"""Bytes that arrive at a time."""
FIRST_FREE_PORT: Final = 49152
"""Where ports are taken from that nobody chose (RFC 6335, section 6)."""


@dataclass(frozen=True, slots=True)
class _Marker:
    """What travels behind the bytes: an end of file, or the loss of the connection."""

    lost: bool


class MemoryNetwork:
    """All hosts and connections of one test. ``latency`` in seconds, one way."""

    def __init__(self, *, latency: float = 0.0) -> None:
        self.latency = latency
        self.severed: set[frozenset[str]] = set()
        """Pairs of hosts that cannot connect; connections that they have already are for the test to cut."""
        self._listeners: dict[Address, _MemoryListener] = {}
        self._connections: list[Connection] = []
        self._next_port = FIRST_FREE_PORT

    def host(self, name: str) -> "MemoryHost":
        """The network as the host ``name`` sees it."""
        return MemoryHost(self, name)

    def connections(self, *hosts: str) -> "tuple[Connection, ...]":
        """The connections that are there, of all these hosts; the oldest first."""
        return tuple(c for c in self._connections if set(hosts) <= set(c.hosts))

    def free_port(self) -> int:
        """A port that nobody has."""
        self._next_port += 1
        return self._next_port - 1

    def listen(self, address: Address, factory: ProtocolFactory) -> Listener:
        """Take calls at ``address``; raises FailureError where somebody does already."""
        if address in self._listeners:
            raise FailureError(
                f"{address} is taken by another program: give --listen HOST:PORT with another port"
            )
        listener = self._listeners[address] = _MemoryListener(self, address, factory)
        return listener

    def forget(self, address: Address) -> None:
        """Nobody listens at ``address`` any more."""
        self._listeners.pop(address, None)

    def connect(self, caller: str, address: Address, factory: ProtocolFactory) -> None:
        """Connect ``caller`` to whoever listens; raises LinkLostError where nobody does."""
        listener = self._listeners.get(address)
        if listener is None or frozenset({caller, address.host}) in self.severed:
            raise LinkLostError("does not listen (connection refused)")
        near = Address(caller, self.free_port())
        connection = Connection(self, near, address, latency=self.latency)
        self._connections.append(connection)
        connection.near.start(factory())
        connection.far.start(listener.factory())

    def drop(self, connection: "Connection") -> None:
        """``connection`` is over."""
        if connection in self._connections:
            self._connections.remove(connection)


class MemoryHost:
    """A :class:`swarm.net.network.Network` for one host."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self.name = name
        self._network = network

    async def connect(self, address: Address, factory: ProtocolFactory) -> None:
        """Call ``address``; takes a round trip."""
        await asyncio.sleep(2 * self._network.latency)
        self._network.connect(self.name, address, factory)

    async def listen(self, host: str, port: int, factory: ProtocolFactory) -> Listener:
        """Take calls at this host, whatever ``host`` names it."""
        if host not in {ANY_HOST, self.name}:
            raise FailureError(
                f"{host} is no address of this machine: give --listen HOST:PORT with one that is"
            )
        return self._network.listen(Address(self.name, port or self._network.free_port()), factory)


class _MemoryListener:
    def __init__(self, network: MemoryNetwork, address: Address, factory: ProtocolFactory) -> None:
        self.factory = factory
        self._network = network
        self._address = address

    @property
    def addresses(self) -> tuple[Address, ...]:
        """The one address."""
        return (self._address,)

    def close(self) -> None:
        """Take no more calls."""
        self._network.forget(self._address)


class Connection:
    """One connection, for tests to break."""

    def __init__(self, network: MemoryNetwork, caller: Address, called: Address, *, latency: float) -> None:
        self.hosts = (caller.host, called.host)
        self.frozen = False
        self.latency = latency
        self._network = network
        self.near = MemoryTransport(self, own=caller, peer=called)
        self.far = MemoryTransport(self, own=called, peer=caller)
        self.near.other, self.far.other = self.far, self.near

    def cut(self) -> None:
        """Both ends are told at once that it is lost; what is under way is lost too."""
        for end in (self.near, self.far):
            end.lose(ConnectionResetError("connection reset by peer"))

    def freeze(self) -> None:
        """Nothing arrives any more, and nobody is told."""
        self.frozen = True

    def thaw(self) -> None:
        """What was held up arrives."""
        self.frozen = False
        self.near.drain()
        self.far.drain()

    def ended(self) -> None:
        """One end is gone."""
        self._network.drop(self)


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    other: "MemoryTransport"

    def __init__(self, connection: Connection, *, own: Address, peer: Address) -> None:
        super().__init__(
            {"peername": (peer.host, peer.port), "sockname": (own.host, own.port), "socket": None}
        )
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._protocol: asyncio.BaseProtocol | None = None
        self._outbox: deque[bytes | _Marker] = deque()
        self._waiting = 0
        """Bytes in the outbox."""
        self._under_way = 0
        """Bytes that have left the outbox and were not read at the other end."""
        self._flight: deque[bytes | _Marker] = deque()
        self._inbox: deque[bytes | _Marker] = deque()
        self._reading = True
        self._writing_paused = False
        self._eof_sent = False
        self._closing = False
        self._lost = False
        self._high, self._low = SEGMENT_BYTES, 0

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        """Connect ``protocol``."""
        self._protocol = protocol
        protocol.connection_made(self)

    # What the protocol calls.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send ``data``, in order."""
        if self._lost or self._eof_sent or not data:
            return
        self._outbox.append(bytes(data))
        self._waiting += len(data)
        self._send()
        if self._waiting > self._high and not self._writing_paused:
            self._writing_paused = True
            self._protocol_or_fail().pause_writing()

    def write_eof(self) -> None:
        """Send no more."""
        if not self._eof_sent and not self._lost:
            self._eof_sent = True
            self._outbox.append(_Marker(lost=False))
            self._send()

    def can_write_eof(self) -> bool:
        """True."""
        return True

    def close(self) -> None:
        """End once what was written is under way."""
        self._closing = True
        self.write_eof()
        self._send()

    def abort(self) -> None:
        """End at once; the other side learns of it after the bytes that are under way."""
        if not self._lost:
            self._outbox.clear()
            self._outbox.append(_Marker(lost=True))
            self._send()
            self.lose(None)

    def is_closing(self) -> bool:
        """Whether it has ended or is about to."""
        return self._lost or self._closing

    def is_reading(self) -> bool:
        """Whether what arrives is given to the protocol."""
        return self._reading

    def pause_reading(self) -> None:
        """Keep what arrives."""
        self._reading = False

    def resume_reading(self) -> None:
        """Give what arrived and arrives to the protocol."""
        self._reading = True
        self._loop.call_soon(self.drain)

    def get_write_buffer_size(self) -> int:
        """Bytes that are not under way yet."""
        return self._waiting

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """When ``pause_writing`` and ``resume_writing`` are called."""
        self._high = SEGMENT_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    # What the connection calls.

    def lose(self, error: Exception | None) -> None:
        """It has ended; the protocol is told soon."""
        if self._lost:
            return
        self._lost = True
        self._waiting = 0
        self._connection.ended()
        self._loop.call_soon(self._protocol_or_fail().connection_lost, error)

    def drain(self) -> None:
        """Give the protocol what has arrived, if it reads."""
        while self._inbox and self._reading and not self._connection.frozen and not self._lost:
            item = self._inbox.popleft()
            if isinstance(item, bytes):
                self._give(item)
                self.other.read(len(item))
            elif item.lost:
                self.lose(ConnectionResetError("connection reset by peer"))
            else:
                self._end_of_file()

    def read(self, count: int) -> None:
        """The other end has read ``count`` bytes of this one."""
        self._under_way -= count
        self._send()

    def _send(self) -> None:
        while self._outbox and self._under_way < WINDOW_BYTES:
            item = self._outbox.popleft()
            if isinstance(item, bytes):
                item, rest = item[:SEGMENT_BYTES], item[SEGMENT_BYTES:]
                if rest:
                    self._outbox.appendleft(rest)
                self._under_way += len(item)
                self._waiting -= len(item)
            self._flight.append(item)
            self._loop.call_later(self._connection.latency, self._land)
        if self._closing and not self._outbox:
            self.lose(None)
        if self._writing_paused and self._waiting <= self._low and not self._lost:
            self._writing_paused = False
            self._protocol_or_fail().resume_writing()

    def _land(self) -> None:
        """The first of what is under way arrives. Timers of one moment fire in any order; bytes must not."""
        self.other.arrive(self._flight.popleft())

    def arrive(self, item: bytes | _Marker) -> None:
        """Something of the other end has arrived."""
        self._inbox.append(item)
        self.drain()

    def _give(self, data: bytes) -> None:
        protocol = self._protocol_or_fail()
        if not isinstance(protocol, asyncio.BufferedProtocol):
            cast("asyncio.Protocol", protocol).data_received(data)
            return
        rest = memoryview(data)
        while rest:
            buffer = memoryview(cast("Any", protocol.get_buffer(len(rest))))
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            protocol.buffer_updated(count)
            rest = rest[count:]

    def _end_of_file(self) -> None:
        protocol = cast("asyncio.BufferedProtocol", self._protocol_or_fail())
        if not protocol.eof_received():
            self.close()

    def _protocol_or_fail(self) -> asyncio.BaseProtocol:
        if self._protocol is None:
            raise RuntimeError("a transport is used before it is connected")
        return self._protocol
