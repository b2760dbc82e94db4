import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm.dht.addresses import Address
from swarm.dht.calls import Target
from swarm.dht.limits import MAX_HAND_OVERS, MAX_PUBLISHERS, K
from swarm.dht.messages import Ping
from swarm.dht.node import Node
from swarm.dht.reachability import Storing
from swarm.dht.rendezvous import Rendezvous
from swarm.dht.table import distance
from swarm.dht.upkeep import STALE_SECONDS, Upkeep
from swarm.identity.keys import PrivateKey
from swarm.ids import SwarmId, swarm_id
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

KEY = Rendezvous(swarm_id(bytes(32))).meeting


class Scene:
    def __init__(
        self, clock: ManualClock, swarm: SwarmId, epoch: bytes, make_key: Callable[[int], PrivateKey]
    ) -> None:
        self.clock = clock
        self.network = MemoryDatagrams()
        self._swarm = swarm
        self._epoch = epoch
        self._make_key = make_key

    async def node(self, number: int, *, storing: Storing = "always") -> Node:
        node = Node(self._make_key(number), swarm=self._swarm, storing=storing, clock=self.clock)
        node.protocol.sealer.set_epoch(1, self._epoch)
        host = f"10.0.{number // 250}.{number % 250 + 1}"
        endpoint = await self.network.open((host,), 7423, node.protocol.on_datagram)
        node.protocol.endpoint = endpoint
        return node

    def target(self, node: Node, number: int) -> Target:
        return Target(node=node.id, address=Address.of(f"10.0.{number // 250}.{number % 250 + 1}", 7423))


Run = Callable[[Callable[[Scene], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(swarm: SwarmId, epoch_key: bytes, make_key: Callable[[int], PrivateKey]) -> Run:
    def runner(body: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def main(clock: ManualClock) -> None:
            await body(Scene(clock, swarm, epoch_key, make_key))

        run_on_manual_clock(main)

    return runner


def closest_to(key: bytes, nodes: list[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: distance(node.id, key))


def test_a_newcomer_is_handed_what_it_should_hold_by_the_closest_node_alone(
    run: Run, make_record: Callable[..., bytes]
) -> None:
    async def body(scene: Scene) -> None:
        numbers = range(1, 5)
        nodes = [await scene.node(number) for number in numbers]
        upkeeps = [Upkeep(node) for node in nodes]
        for node in nodes:
            for other, number in zip(nodes, numbers, strict=True):
                if other is not node:
                    await node.protocol.calls.call(scene.target(other, number), Ping())
            for publisher in range(100, 100 + MAX_PUBLISHERS):
                node.storage.offer(
                    KEY, make_record(publisher, wall=scene.clock.wall()), now=scene.clock.wall()
                )
        newcomer = await scene.node(50)
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(upkeep.hand_over()) for upkeep in upkeeps]
            await asyncio.sleep(1)
            before = {node.id: node.protocol.calls.made for node in nodes}
            for node, number in zip(nodes, numbers, strict=True):
                await newcomer.protocol.calls.call(scene.target(node, number), Ping())
            await asyncio.sleep(5)
            for task in running:
                task.cancel()
        assert len(newcomer.storage.read(KEY, now=scene.clock.wall())) == MAX_PUBLISHERS
        handed = [node for node in nodes if node.protocol.calls.made > before[node.id]]
        assert handed == closest_to(KEY, nodes)[:1]

    run(body)


def test_a_newcomer_too_far_from_a_key_is_handed_nothing(
    run: Run, make_record: Callable[..., bytes], make_key: Callable[[int], PrivateKey]
) -> None:
    async def body(scene: Scene) -> None:
        everybody = [await scene.node(number) for number in range(1, K + 10)]
        ranked = closest_to(KEY, everybody)
        holder, newcomer = ranked[0], ranked[-1]
        upkeep = Upkeep(holder)
        numbers = {node.id: number for number, node in enumerate(everybody, 1)}
        for node in ranked[1:-1]:
            await holder.protocol.calls.call(scene.target(node, numbers[node.id]), Ping())
        holder.storage.offer(KEY, make_record(100, wall=scene.clock.wall()), now=scene.clock.wall())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(upkeep.hand_over())
            await asyncio.sleep(1)
            await newcomer.protocol.calls.call(scene.target(holder, numbers[holder.id]), Ping())
            await asyncio.sleep(5)
            running.cancel()
        assert newcomer.id in {contact.id for contact in holder.table.contacts()}
        assert len(newcomer.storage) == 0

    run(body)


def test_clients_are_handed_nothing_and_hand_over_nothing(
    run: Run, make_record: Callable[..., bytes]
) -> None:
    async def body(scene: Scene) -> None:
        holder, client = await scene.node(1), await scene.node(2, storing="never")
        upkeeps = [Upkeep(holder), Upkeep(client)]
        for node in (holder, client):
            node.storage.keep_own(KEY, make_record(100, wall=scene.clock.wall()), now=scene.clock.wall())
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(upkeep.hand_over()) for upkeep in upkeeps]
            await client.protocol.calls.call(scene.target(holder, 1), Ping())
            await asyncio.sleep(5)
            for task in running:
                task.cancel()
        assert holder.protocol.calls.made == 0
        assert client.protocol.calls.made == 1

    run(body)


def test_waiting_newcomers_are_bounded(run: Run) -> None:
    async def body(scene: Scene) -> None:
        holder = await scene.node(1)
        upkeep = Upkeep(holder)
        for number in range(2, MAX_HAND_OVERS + 10):
            newcomer = await scene.node(number)
            await newcomer.protocol.calls.call(scene.target(holder, 1), Ping())
        assert upkeep._newcomers.qsize() == MAX_HAND_OVERS

    run(body)


def test_contacts_not_heard_for_long_are_asked_and_the_dead_dropped(run: Run) -> None:
    async def body(scene: Scene) -> None:
        own = await scene.node(1)
        upkeep = Upkeep(own)
        others = [await scene.node(number) for number in range(2, 14)]
        for number, other in enumerate(others, 2):
            await own.protocol.calls.call(scene.target(other, number), Ping())
        made = own.protocol.calls.made
        await upkeep.ping_stale()
        assert own.protocol.calls.made == made
        scene.clock.advance(STALE_SECONDS + 1)
        scene.network.unplugged.add("10.0.0.3")
        await upkeep.ping_stale()
        assert own.protocol.calls.made == made + 12
        assert [contact.silences for contact in own.table.contacts() if contact.id == others[0].id] == [1]
        await upkeep.ping_stale()
        assert own.protocol.calls.made == made + 13
        assert others[0].id in {contact.id for contact in own.table.contacts()}
        scene.clock.advance(STALE_SECONDS + 1)
        await upkeep.ping_stale()
        assert {contact.id for contact in own.table.contacts()} == {other.id for other in others[1:]}

    run(body)


def test_buckets_without_a_lookup_for_an_hour_are_refreshed(run: Run) -> None:
    async def body(scene: Scene) -> None:
        own = await scene.node(1)
        upkeep = Upkeep(own)
        other = await scene.node(2)
        await own.protocol.calls.call(scene.target(other, 2), Ping())
        made = own.protocol.calls.made
        await upkeep.refresh_buckets()
        assert own.protocol.calls.made == made
        scene.clock.advance(3601)
        await upkeep.refresh_buckets()
        assert own.protocol.calls.made == made + 1
        assert own.table.lonely_buckets() == []

    run(body)


def test_expired_records_go(run: Run, make_record: Callable[..., bytes]) -> None:
    async def body(scene: Scene) -> None:
        own = await scene.node(1)
        own.storage.offer(KEY, make_record(100, wall=scene.clock.wall()), now=scene.clock.wall())
        scene.clock.advance(1801)
        Upkeep(own).expire()
        assert len(own.storage) == 0

    run(body)
