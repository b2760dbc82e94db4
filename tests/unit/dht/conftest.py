"""Keys from seeds, records of any form, nodes in memory, and an insider who knows the epoch key."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest

from swarm.dht.addresses import Address
from swarm.dht.answering import Answering
from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.dht.messages import Datagram, decode_body, encode_body
from swarm.dht.proof import node_id
from swarm.dht.protocol import Protocol
from swarm.dht.reachability import Reachability
from swarm.dht.seal import Opened, Sealer
from swarm.dht.storage import RecordStorage
from swarm.dht.table import Contact, Table
from swarm.identity.keys import PrivateKey
from swarm.ids import SwarmId, swarm_id
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.wire.records.peer import sign_record

SWARM = swarm_id(bytes(32))
EPOCH_KEY = bytes(range(32))


def key_of(number: int) -> PrivateKey:
    return PrivateKey.from_raw(number.to_bytes(32, "big"))


def record_of(number: int, *, wall: float, **changes: Any) -> bytes:
    """The record of key ``number``, signed at ``wall``; ``changes`` replace its fields."""
    fields: dict[str, Any] = {
        "swarm": SWARM,
        "sequence": int(wall * 1000),
        "expires": wall + 1800,
        "role": "peer",
        "addresses": ("198.51.100.7:7423",),
    }
    return sign_record(key_of(number), **fields | changes)


class Insider:
    """A member who plays by no rules: sends any body, sealed as any node, from any address."""

    def __init__(self, network: MemoryDatagrams, clock: ManualClock, *, number: int, host: str) -> None:
        self.key = key_of(number)
        self.node = node_id(self.key.public)
        self.address = Address.of(host, 666)
        self.heard: list[Datagram] = []
        self.raw: list[bytes] = []
        self.sealer = Sealer(self.node, clock=clock)
        self.sealer.set_epoch(1, EPOCH_KEY)
        self._network = network
        self._on: Callable[[Datagram, Opened, Address], None] | None = None

    async def open(self, on: Callable[[Datagram, Opened, Address], None] | None = None) -> None:
        self._on = on
        await self._network.open((self.address.host,), self.address.port, self._receive)

    def _receive(self, data: bytes, source: Address) -> None:
        self.raw.append(data)
        opened = self.sealer.open(data)
        if isinstance(opened, Opened):
            datagram = decode_body(opened.body)
            self.heard.append(datagram)
            if self._on is not None:
                self._on(datagram, opened, source)

    def send(self, datagram: Datagram, to: Address, *, source: Address | None = None) -> bytes:
        sealed = self.sealer.seal(encode_body(datagram), self.sealer.best(None))
        self._network.transmit(sealed, source or self.address, to)
        return sealed


class Bare:
    """A protocol with its parts, on an address of its own."""

    def __init__(self, network: MemoryDatagrams, clock: ManualClock, number: int, *, storing: bool) -> None:
        self.key = key_of(number)
        self.table = Table(node_id(self.key.public), clock=clock)
        self.storage = RecordStorage(self.table.node.id, swarm=SWARM)
        reachability = Reachability("always" if storing else "never", clock=clock)
        self.answering = Answering(
            table=self.table, storage=self.storage, clock=clock, reachability=reachability
        )
        self.protocol = Protocol(
            self.key,
            clock=clock,
            table=self.table,
            reachability=reachability,
            answer=self.answering.answer,
        )
        self.protocol.sealer.set_epoch(1, EPOCH_KEY)
        self.address = Address.of(f"10.0.{number // 250}.{number % 250 + 1}", 7423)
        self._network = network

    async def open(self) -> "Bare":
        endpoint = await self._network.open((self.address.host,), 7423, self.protocol.on_datagram)
        self.protocol.endpoint = endpoint
        return self


class Peers:
    """Discoveries on one network in memory; peer ``number`` lives at 10.0.0.``number + 1``:7423."""

    def __init__(self, clock: ManualClock, network: MemoryDatagrams) -> None:
        self.clock = clock
        self.network = network

    @staticmethod
    def host(number: int) -> str:
        return f"10.0.{number // 250}.{number % 250 + 1}"

    def seed(self, number: int) -> str:
        return f"{self.host(number)}:7423"

    async def start(self, number: int, *, epoch: bytes = EPOCH_KEY, **config: Any) -> Discovery:
        fields: dict[str, Any] = {"swarm": SWARM, "listen": (self.host(number),)}
        discovery = Discovery(
            DiscoveryConfig(**fields | config),
            key=key_of(number + 1),
            clock=self.clock,
            network=self.network,
        )
        discovery.set_epoch(1, epoch)
        await discovery.start()
        return discovery

    async def swarm(self, count: int, **config: Any) -> list[Discovery]:
        """``count`` peers, joined through the first, each published."""
        peers = [await self.start(number, **config) for number in range(count)]
        for number, peer in enumerate(peers):
            await peer.join([self.seed(0)] if number else [])
        async with asyncio.TaskGroup() as group:
            for number, peer in enumerate(peers):
                group.create_task(peer.publish([self.seed(number)], "peer"))
        return peers


@pytest.fixture
def swarm() -> SwarmId:
    return SWARM


@pytest.fixture
def epoch_key() -> bytes:
    return EPOCH_KEY


@pytest.fixture
def make_key() -> Callable[[int], PrivateKey]:
    return key_of


@pytest.fixture
def make_record() -> Callable[..., bytes]:
    return record_of


@pytest.fixture
def make_insider() -> type[Insider]:
    return Insider


@pytest.fixture
def make_bare() -> type[Bare]:
    return Bare


@pytest.fixture
def make_peers() -> type[Peers]:
    return Peers


@pytest.fixture
def make_contact() -> Callable[..., Contact]:
    def make(node: bytes, *, host: str = "10.1.0.1", storing: bool = True, boot: bytes = bytes(8)) -> Contact:
        return Contact(node, Address.of(host, 7423), boot=boot, storing=storing)

    return make


@pytest.fixture(scope="session")
def loopbacks() -> tuple[str, ...]:
    """The loopback addresses of the families that this machine has."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return ("127.0.0.1",)
    return ("127.0.0.1", "::1")
