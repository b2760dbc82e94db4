"""A datagram network in memory: seeded loss, delay and duplication, and a switch for each host."""

import asyncio
import random
from collections.abc import Callable

from swarm.dht.addresses import Address, Family
from swarm.errors import FailureError

Receive = Callable[[bytes, Address], None]


class MemoryDatagrams:
    """The network that endpoints of :class:`swarm.dht.discovery.Discovery` may be opened on.

    ``loss`` and ``duplication`` are probabilities for each datagram, ``delay`` seconds one way. Hosts are
    numeric addresses; nothing has to exist before it is opened. With :class:`swarm.testing.loop.ManualLoop`
    and one seed, two runs are the same.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        loss: float = 0.0,
        duplication: float = 0.0,
        delay: float = 0.01,
        remember: bool = True,
    ) -> None:
        self._remember = remember
        self.loss = loss
        self.duplication = duplication
        self.delay = delay
        self.sent: list[tuple[Address, Address, bytes]] = []
        """Every datagram that was sent: from, to, bytes; whether or not it arrived. Only if ``remember``."""
        self.unplugged: set[str] = set()
        """Hosts that neither send nor receive."""
        self.severed: set[frozenset[str]] = set()
        """Pairs of hosts that do not reach each other."""
        self.guarded: set[str] = set()
        """Hosts behind routers that let in only what comes from an address and port that was sent to."""
        self._sent_to: dict[str, set[Address]] = {}
        self._random = random.Random(seed)  # noqa: S311 - faults are to be repeatable
        self._open: dict[Address, MemoryEndpoint] = {}

    async def open(self, hosts: tuple[str, ...], port: int, receive: Receive) -> "MemoryEndpoint":
        """An endpoint on ``hosts`` and ``port`` (0: any that is free); FailureError where it is taken."""
        chosen = port or next(
            free
            for free in range(49152, 65536)
            if not any(Address.of(host, free) in self._open for host in hosts)
        )
        addresses = tuple(Address.of(host, chosen) for host in hosts)
        if any(address in self._open for address in addresses):
            raise FailureError(f"port {chosen} (UDP) is taken: give another one with --listen HOST:PORT")
        endpoint = MemoryEndpoint(self, addresses, receive)
        self._open |= dict.fromkeys(addresses, endpoint)
        return endpoint

    def transmit(self, data: bytes, source: Address, destination: Address) -> None:
        """Carry one datagram, or lose it; also for tests that play a sender without an endpoint."""
        if self._remember:
            self.sent.append((source, destination, data))
        if source.host in self.guarded:
            self._sent_to.setdefault(source.host, set()).add(destination)
        if frozenset({source.host, destination.host}) in self.severed:
            return
        if self.unplugged & {source.host, destination.host} or self._random.random() < self.loss:
            return
        loop = asyncio.get_running_loop()
        for _ in range(1 + (self._random.random() < self.duplication)):
            wait = self.delay * self._random.uniform(1.0, 1.2)
            loop.call_later(wait, self._deliver, data, source, destination)

    def _deliver(self, data: bytes, source: Address, destination: Address) -> None:
        if destination.host in self.guarded and source not in self._sent_to.get(destination.host, ()):
            return
        endpoint = self._open.get(destination)
        if endpoint is not None and destination.host not in self.unplugged:
            endpoint.receive(data, source)

    def release(self, addresses: tuple[Address, ...]) -> None:
        """Free the addresses of an endpoint that has closed."""
        for address in addresses:
            self._open.pop(address, None)


class MemoryEndpoint:
    """One endpoint of :class:`MemoryDatagrams`."""

    def __init__(self, network: MemoryDatagrams, addresses: tuple[Address, ...], receive: Receive) -> None:
        self._network = network
        self._addresses = addresses
        self._closed = False
        self.receive = receive
        self.is_sound = True
        """Set it to False to play a socket that the system has taken away."""

    @property
    def port(self) -> int:
        """The port that all addresses share."""
        return self._addresses[0].port

    @property
    def families(self) -> frozenset[Family]:
        """The families of its addresses."""
        return frozenset(address.family for address in self._addresses)

    def send(self, data: bytes, address: Address) -> bool:
        """Send from the address of the same family; False where there is none."""
        source = next((own for own in self._addresses if own.family == address.family), None)
        if source is None or self._closed or not self.is_sound:
            return False
        self._network.transmit(data, source, address)
        return True

    def close(self) -> None:
        """Neither send nor receive any more."""
        if not self._closed:
            self._closed = True
            self._network.release(self._addresses)
