"""Discovery under churn: a population of which somebody leaves without a word all the time, and others come.

Sessions have an exponential distribution, as those of file-sharing peers roughly do; whoever leaves is
replaced by a new peer with a new key. Two bootstrap nodes stay. The population is the same for one seed.
"""

import asyncio
import logging
import math
import os
import random
from dataclasses import dataclass, field
from typing import Final

import pytest

from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.dht.limits import MAX_PROVEN, MAX_PUBLISHERS
from swarm.dht.rendezvous import SHARDS
from swarm.dht.upkeep import STALE_SECONDS
from swarm.identity.keys import PrivateKey
from swarm.ids import PeerId, swarm_id
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

BOOTSTRAP_NODES: Final = 2
SWARM: Final = swarm_id(bytes(32))
EPOCH_KEY: Final = bytes(range(32))


@dataclass(frozen=True, slots=True, kw_only=True)
class ChurnConfig:
    """One soak."""

    nodes: int
    """Peers at any time, without the bootstrap nodes."""
    median_session: float = 120.0
    """Seconds within which half of the peers that came have left."""
    lifetime: float = 300.0
    """Seconds that a record is valid for."""
    look_every: float = 1.0
    """Seconds between lookups."""
    seed: int = 0


@dataclass(slots=True, kw_only=True)
class ChurnReport:
    """What came of it."""

    lookups: int = 0
    failed: int = 0
    """Lookups of peers that were there and had published, from peers that were in, without result."""
    outlived: int = 0
    """Lookups that returned a peer after its last record's end."""
    departed: int = 0
    most_contacts: int = 0
    most_records: int = 0
    most_proven: int = 0


@dataclass(slots=True, kw_only=True, eq=False)
class Peer:
    discovery: Discovery
    peer: PeerId
    address: str
    leaving: float
    published: bool = False
    living: asyncio.Task[None] | None = None


@dataclass(slots=True, kw_only=True)
class Gone:
    peer: PeerId
    ended: float
    """Wall time at which its last record has expired for certain."""


@dataclass(slots=True)
class Churn:
    """A soak on a manual clock, whose loop has to be running."""

    config: ChurnConfig
    clock: ManualClock
    network: MemoryDatagrams = field(init=False)
    report: ChurnReport = field(init=False, default_factory=ChurnReport)
    _random: random.Random = field(init=False)
    _doors: list[str] = field(init=False, default_factory=list)
    _peers: list[Peer] = field(init=False, default_factory=list)
    _gone: list[Gone] = field(init=False, default_factory=list)
    _born: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self._random = random.Random(self.config.seed)
        self.network = MemoryDatagrams(seed=self.config.seed, delay=0.03, remember=False)

    async def run(self, seconds: float) -> ChurnReport:
        """Let ``seconds`` pass, after all have come; raises what a node raises, and what its checks find."""
        async with asyncio.TaskGroup() as group:
            for _ in range(BOOTSTRAP_NODES):
                door = await self._start(group, math.inf)
                self._doors.append(door.address)
                await asyncio.sleep(1)
            for _ in range(self.config.nodes):
                await self._start(group, self._session())
                await asyncio.sleep(0.05)
            await asyncio.sleep(self.config.median_session / 2)
            end = self.clock.elapsed() + seconds
            while self.clock.elapsed() < end:
                await self._replace(group)
                group.create_task(self._look())
                await asyncio.sleep(self.config.look_every)
            for peer in list(self._peers):
                await self._end(peer)
        return self.report

    def _session(self) -> float:
        return self._random.expovariate(math.log(2) / self.config.median_session)

    async def _start(self, group: asyncio.TaskGroup, session: float) -> Peer:
        self._born += 1
        host = f"10.{self._born >> 16}.{self._born >> 8 & 255}.{self._born & 255}"
        key = PrivateKey.from_raw(self._random.randbytes(32))
        config = DiscoveryConfig(swarm=SWARM, listen=(host,), lifetime=self.config.lifetime)
        discovery = Discovery(config, key=key, clock=self.clock, network=self.network)
        discovery.set_epoch(1, EPOCH_KEY)
        await discovery.start()
        leaving = self.clock.elapsed() + session
        peer = Peer(discovery=discovery, peer=key.peer, address=f"{host}:7423", leaving=leaving)
        self._peers.append(peer)
        peer.living = group.create_task(self._live(peer))
        return peer

    async def _live(self, peer: Peer) -> None:
        """Join, publish, and do chores from then on."""
        await peer.discovery.join([door for door in self._doors if door != peer.address])
        await peer.discovery.publish([peer.address], "peer")
        peer.published = True
        await peer.discovery.run()

    async def _replace(self, group: asyncio.TaskGroup) -> None:
        now = self.clock.elapsed()
        for peer in [one for one in self._peers if one.leaving <= now]:
            await self._end(peer)
            self.report.departed += 1
            self._gone.append(Gone(peer=peer.peer, ended=self.clock.wall() + self.config.lifetime))
            await self._start(group, self._session())

    async def _end(self, peer: Peer) -> None:
        self._peers.remove(peer)
        self._inspect(peer)
        assert peer.living is not None
        assert not peer.living.done()
        peer.living.cancel()
        await asyncio.wait([peer.living])
        await peer.discovery.aclose()

    async def _look(self) -> None:
        """Look up a live publisher; and now and then one whose record has ended."""
        live = [peer for peer in self._peers if peer.published]
        reader, wanted = self._random.choice(live), self._random.choice(live)
        found = await reader.discovery.find_peer(wanted.peer)
        if reader in self._peers and wanted in self._peers:
            self.report.lookups += 1
            self.report.failed += found is None
        ended = [one for one in self._gone if one.ended <= self.clock.wall()]
        if ended and reader in self._peers:
            gone = self._random.choice(ended).peer
            self.report.outlived += await reader.discovery.find_peer(gone) is not None

    def _inspect(self, peer: Peer) -> None:
        """Raise LocalError where its table or storage is not sound, and note how large they were."""
        node = peer.discovery._node
        node.table.check()
        node.storage.check()
        report = self.report
        report.most_contacts = max(report.most_contacts, len(node.table.contacts()))
        report.most_records = max(report.most_records, len(node.storage))
        report.most_proven = max(report.most_proven, len(node.protocol.contacts))
        assert report.most_proven <= MAX_PROVEN


def soak(config: ChurnConfig, *, seconds: float) -> ChurnReport:
    """What came of so many seconds."""

    async def main(clock: ManualClock) -> ChurnReport:
        return await Churn(config, clock).run(seconds)

    return run_on_manual_clock(main)


def judge(config: ChurnConfig, report: ChurnReport) -> None:
    """What discovery has to do."""
    logging.getLogger(__name__).info("%s", report)
    assert report.failed <= report.lookups / 1000
    assert report.outlived == 0
    leave_a_second = config.nodes * math.log(2) / config.median_session
    found_out = STALE_SECONDS + 2 * 60.0
    """Seconds until the second silence of one that left, with chores once a minute."""
    assert report.most_contacts <= BOOTSTRAP_NODES + config.nodes + leave_a_second * found_out
    assert report.most_records <= (1 + SHARDS) * (MAX_PUBLISHERS + 1)


LONG = "SWARM_SOAK"
"""Set in the environment, it makes the soak the long one of the night."""


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_live_publishers_are_found_and_the_departed_are_not_while_peers_come_and_go() -> None:
    if LONG in os.environ:
        config = ChurnConfig(nodes=200)
        report = soak(config, seconds=1800.0)
        assert report.lookups > 1500
        assert report.departed > 1500
    else:
        config = ChurnConfig(nodes=16, lifetime=90.0)
        report = soak(config, seconds=150.0)
        assert report.lookups > 100
        assert report.departed > 10
    judge(config, report)
