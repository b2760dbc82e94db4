"""Nodes on the internet, some behind routers that let in nothing but answers."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm.dht.addresses import Address
from swarm.dht.calls import Target
from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.dht.messages import AskKnock, Request
from swarm.dht.reachability import Storing
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

DOOR = "26.0.0.1"
SETTLED = 120.0


class Scene:
    """``hosts`` join through the door; all do their chores."""

    def __init__(self, clock: ManualClock, make_key: Any, swarm: Any, epoch_key: bytes) -> None:
        self.network = MemoryDatagrams()
        self.nodes: dict[str, Discovery] = {}
        self._clock = clock
        self._make_key = make_key
        self._swarm = swarm
        self._epoch_key = epoch_key

    async def start(self, host: str, *, storing: Storing = "reachable") -> Discovery:
        config = DiscoveryConfig(swarm=self._swarm, listen=(host,), storing=storing)
        key = self._make_key(len(self.nodes) + 1)
        node = Discovery(config, key=key, clock=self._clock, network=self.network)
        node.set_epoch(1, self._epoch_key)
        await node.start()
        self.nodes[host] = node
        return node

    async def join(self, group: asyncio.TaskGroup, host: str, *, door: str = DOOR) -> Discovery:
        node = await self.start(host)
        await node.join([f"{door}:7423"])
        group.create_task(node.run())
        await node.publish([f"{host}:7423"], "peer")
        return node

    def known_to(self, host: str) -> set[str]:
        return {one.address.host for one in self.nodes[host]._node.table.contacts()}


Body = Callable[[Scene, asyncio.TaskGroup], Coroutine[Any, Any, None]]


@pytest.fixture
def run(make_key: Any, swarm: Any, epoch_key: bytes) -> Callable[[Body], None]:
    class Over(Exception):  # noqa: N818 - it ends the chores, and is no error
        pass

    def runner(body: Body) -> None:
        async def main(clock: ManualClock) -> None:
            scene = Scene(clock, make_key, swarm, epoch_key)
            try:
                async with asyncio.TaskGroup() as group:
                    door = await scene.start(DOOR, storing="always")
                    group.create_task(door.run())
                    await body(scene, group)
                    raise Over
            except* Over:
                pass
            for node in scene.nodes.values():
                await node.aclose()

        run_on_manual_clock(main)

    return runner


def test_who_is_behind_a_router_stores_nothing_and_is_in_no_table(run: Callable[[Body], None]) -> None:
    async def body(scene: Scene, group: asyncio.TaskGroup) -> None:
        behind, beyond = "26.0.0.2", "26.0.0.3"
        scene.network.guarded.add(behind)
        for host in (behind, beyond):
            await scene.join(group, host)
        await asyncio.sleep(SETTLED)
        assert not scene.nodes[behind].statistics().reached
        assert scene.nodes[beyond].statistics().reached
        assert scene.known_to(DOOR) == {beyond}
        assert scene.known_to(beyond) == {DOOR}
        assert scene.known_to(behind) == {DOOR, beyond}
        hidden = scene.nodes[behind]._node
        assert {
            held.publisher
            for key in hidden.storage.held_keys()
            for held in hidden.storage.read(key, now=hidden.clock.wall())
        } == {hidden.id}
        found = await scene.nodes[beyond].find()
        assert len(found) == 2, "its own record is there for others all the same"

    run(body)


def test_a_port_that_opens_later_is_noticed(run: Callable[[Body], None]) -> None:
    async def body(scene: Scene, group: asyncio.TaskGroup) -> None:
        scene.network.guarded.add("26.0.0.2")
        node = await scene.join(group, "26.0.0.2")
        await asyncio.sleep(SETTLED)
        assert scene.known_to(DOOR) == set()
        scene.network.guarded.clear()
        await asyncio.sleep(SETTLED)
        assert node.statistics().reached
        assert scene.known_to(DOOR) == {"26.0.0.2"}

    run(body)


def test_two_peers_without_a_bootstrap_node_serve_each_other(run: Callable[[Body], None]) -> None:
    async def body(scene: Scene, group: asyncio.TaskGroup) -> None:
        first = await scene.start("26.0.0.2")
        group.create_task(first.run())
        await first.publish(["26.0.0.2:7423"], "peer")
        second = await scene.join(group, "26.0.0.3", door="26.0.0.2")
        assert first.statistics().reached, "the other one was a stranger"
        assert await second.confirm()
        await asyncio.sleep(SETTLED)
        assert second.statistics().reached
        assert len(await first.find()) == len(await second.find()) == 2

    run(body)


def test_neighbours_in_one_local_network_serve_each_other_from_the_start(
    run: Callable[[Body], None],
) -> None:
    async def body(scene: Scene, group: asyncio.TaskGroup) -> None:
        first = await scene.start("192.168.1.2")
        group.create_task(first.run())
        second = await scene.join(group, "192.168.1.3", door="192.168.1.2")
        assert await second.confirm()
        assert scene.known_to("192.168.1.2") == {"192.168.1.3"}

    run(body)


def test_a_knock_is_smaller_than_its_request_and_goes_to_the_asker_alone(
    run: Callable[[Body], None],
) -> None:
    async def body(scene: Scene, group: asyncio.TaskGroup) -> None:
        asker = await scene.start("26.0.0.2")
        await asker.join([f"{DOOR}:7423"])
        scene.network.sent.clear()
        door = scene.nodes[DOOR]
        target = Target(node=door._node.id, address=Address.of(DOOR, 7423))
        await asker._node.protocol.calls.call(target, AskKnock())
        await asyncio.sleep(1)
        knocks = [(to, len(data)) for source, to, data in scene.network.sent if source.port != 7423]
        assert [to for to, _ in knocks] == [Address.of("26.0.0.2", 7423)]
        requests = [len(data) for source, _, data in scene.network.sent if source.host == "26.0.0.2"]
        assert len(requests) == 1, "a knock is not answered"
        assert knocks[0][1] < min(requests)

    run(body)


def test_who_has_not_shown_its_key_is_not_knocked_at(run: Callable[[Body], None], make_insider: Any) -> None:
    async def body(scene: Scene, group: asyncio.TaskGroup) -> None:
        insider = make_insider(scene.network, scene.nodes[DOOR]._node.clock, number=9, host="26.0.0.9")
        await insider.open()
        request = Request(
            message=bytes(16), storing=True, prove=True, cookie=b"", proof=None, question=AskKnock()
        )
        victim = Address.of("26.0.0.5", 7423)
        scene.network.sent.clear()
        insider.send(request, Address.of(DOOR, 7423), source=victim)
        await asyncio.sleep(1)
        answers = [data for source, to, data in scene.network.sent if to == victim]
        assert len(answers) == 1, "the challenge"
        assert len(answers[0]) <= len(scene.network.sent[0][2])

    run(body)
