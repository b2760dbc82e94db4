"""Gossip on real nodes over networks in memory, on a manual clock: hours pass at once.

Who is in is known along chains of links, and who has left is forgotten; halves that meet become one swarm.
"""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path

from swarm.clock import wall
from swarm.ids import PeerId
from swarm.net.memory import MemoryNetwork
from swarm.services.networks import Networks
from swarm.services.node import Node
from swarm.testing.clock import ManualClock
from swarm.testing.cluster import Cluster
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock
from swarm.wire.records.member import MEMBER_LIFETIME


class World(Cluster):
    """A cluster whose hosts can be kept from each other."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self.streams, self.datagrams = MemoryNetwork(latency=0.01), MemoryDatagrams()
        super().__init__(
            folder,
            networks=lambda host: Networks(streams=self.streams.host(host), datagrams=self.datagrams),
            clock=clock,
        )

    def sever(self, some: Iterable[Node], others: Iterable[Node]) -> None:
        """Keep ``some`` from ``others``, and end what connects them."""
        for one, other in itertools.product([host(node) for node in some], [host(node) for node in others]):
            self.streams.severed.add(frozenset({one, other}))
            self.datagrams.severed.add(frozenset({one, other}))
            for connection in self.streams.connections(one, other):
                connection.cut()

    def heal(self) -> None:
        """Let everybody reach everybody."""
        self.streams.severed.clear()
        self.datagrams.severed.clear()

    async def add(self) -> Node:
        """A peer that gives nothing."""
        node = self.make_peer(self.invite())
        await self.enter(node)
        return node


def host(node: Node) -> str:
    return node.config.listen.host


def known(node: Node) -> set[str]:
    """Who is in the swarm, as far as ``node`` knows."""
    return {member.peer for member in node.gossip.members()}


def everybody(nodes: Iterable[Node]) -> set[str]:
    return {node.identity.peer for node in nodes}


def play(folder: Path, scene: Callable[[World], Coroutine[None, None, None]]) -> None:
    """Run ``scene`` in a world of its own."""

    async def main(clock: ManualClock) -> None:
        clock.set_wall(wall())  # OpenSSL asks the machine
        async with World(folder, clock) as world:
            await scene(world)

    run_on_manual_clock(main)


async def chain(world: World) -> tuple[Node, Node, Node]:
    """Three nodes of which the first and the last cannot reach each other."""
    b = await world.add_bootstrap()
    a = await world.add()
    world.streams.severed.add(frozenset({host(a), "10.0.0.3"}))
    world.datagrams.severed.add(frozenset({host(a), "10.0.0.3"}))
    c = await world.add()
    nodes = (a, b, c)
    await world.until(lambda: all(known(node) == everybody(nodes) for node in nodes), seconds=60)
    return nodes


def test_a_peer_knows_whom_it_was_never_linked_with_and_forgets_who_departs(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        a, b, c = await chain(world)
        departed = c.identity.peer
        shown = next(member for member in a.status().members if member.id == departed)
        assert (shown.known, shown.address, shown.linked) == ("gossip", c.addresses[0], False)
        assert shown.heard is not None
        await world.end(c)
        await world.until(lambda: departed not in known(a), seconds=30)
        assert departed not in {member.id for member in a.status().members}
        for _ in range(40):
            await asyncio.sleep(MEMBER_LIFETIME / 20)
            assert known(a) == known(b) == everybody((a, b))

    play(tmp_path, scene)


def test_who_dies_without_a_word_is_forgotten_when_its_record_expires(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        a, b, c = await chain(world)
        world.sever((c,), (a, b))
        began = world.clock.elapsed()
        await world.until(lambda: known(a) == everybody((a, b)), seconds=MEMBER_LIFETIME + 60)
        assert world.clock.elapsed() - began > MEMBER_LIFETIME / 2
        await asyncio.sleep(MEMBER_LIFETIME)
        assert known(a) == everybody((a, b))
        world.heal()
        await world.until(lambda: known(a) == everybody((a, b, c)), seconds=600)

    play(tmp_path, scene)


def test_halves_that_began_apart_are_one_swarm_once_they_reach_each_other(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        hosts = [f"10.0.0.{number}" for number in range(1, 5)]
        for one, other in itertools.product(hosts[:2], hosts[2:]):
            world.streams.severed.add(frozenset({one, other}))
            world.datagrams.severed.add(frozenset({one, other}))
        left = [await world.add_bootstrap(), await world.add()]
        right = [await world.add_bootstrap(), await world.add()]
        await world.until(lambda: all(known(node) == everybody(left) for node in left))
        await world.until(lambda: all(known(node) == everybody(right) for node in right))
        assert world.authority.revoke(peers=[PeerId("q" * 32)], invites=[], now=world.clock.wall())
        issued = world.authority.revocations
        right[1].revoked.learn(issued.lists, issued.epoch_key)

        world.heal()
        nodes = left + right
        await world.until(lambda: all(known(node) == everybody(nodes) for node in nodes), seconds=900)
        await world.until(lambda: all(node.revocations.number == 1 for node in nodes), seconds=60)

    play(tmp_path, scene)
