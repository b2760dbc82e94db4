import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm.errors import MisuseError
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

Body = Callable[[Any, MemoryDatagrams, ManualClock], Coroutine[Any, Any, None]]
Run = Callable[[Body], None]


@pytest.fixture
def run(make_peers: Any) -> Run:
    def runner(body: Body) -> None:
        async def main(clock: ManualClock) -> None:
            network = MemoryDatagrams()
            await body(make_peers(clock, network), network, clock)

        run_on_manual_clock(main)

    return runner


def own_record(peer: Any) -> Any:
    node = peer._node
    [held] = [
        one
        for one in node.storage.read(node.rendezvous.meeting, now=node.clock.wall())
        if one.publisher == node.id
    ]
    return held.record


def test_the_count_is_of_other_nodes_that_hold_the_record(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(6)
        assert await swarm[3].publish(["10.0.0.4:7423"], "peer") == 5
        assert swarm[3].statistics().confirmed == 5
        network.unplugged |= {peers.host(0), peers.host(1)}
        assert await swarm[3].publish(["10.0.0.4:7423"], "peer") == 3

    run(body)


def test_what_is_lost_on_the_way_to_the_only_other_node_is_sent_again(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        _, peer = await peers.swarm(2)
        network.loss = 1.0
        asyncio.get_running_loop().call_later(2.5, setattr, network, "loss", 0.0)
        assert await peer.publish(["10.0.0.9:7423"], "peer") == 1

    run(body)


def test_clients_hold_nothing_and_are_not_counted(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(3)
        clients = [await peers.start(number, storing="never") for number in (3, 4)]
        for client in clients:
            await client.join([peers.seed(0)])
            assert await client.publish(["10.0.0.9:7423"], "author") == 3
        assert await swarm[0].publish([peers.seed(0)], "bootstrap") == 2
        assert clients[0].statistics().records == 2, "its own, under both of its keys"
        assert {record.role for record in await swarm[1].find()} == {"bootstrap", "peer", "author"}

    run(body)


def test_each_publication_has_a_higher_sequence_even_if_the_clock_is_set_back(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        [peer] = await peers.swarm(1)
        first = own_record(peer).sequence
        clock.set_wall(clock.wall() - 50)
        await peer.publish(["10.0.0.9:7423"], "peer")
        assert own_record(peer).sequence == first + 1

    run(body)


def test_a_restart_with_a_clock_that_was_ahead_before_still_replaces_the_old_record(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(3)
        clock.set_wall(clock.wall() + 50)
        assert await swarm[2].publish(["10.0.0.3:1"], "peer") == 2
        await swarm[2].aclose()
        clock.set_wall(clock.wall() - 50)
        anew = await peers.start(2)
        await anew.join([peers.seed(0)])
        assert await anew.publish(["10.0.0.3:2"], "peer") == 2
        [record] = [one for one in await swarm[0].find() if one.peer == own_record(anew).peer]
        assert record.addresses == ("10.0.0.3:2",)

    run(body)


def test_a_record_is_renewed_after_a_third_of_its_life(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(3, lifetime=900.0)
        first = own_record(swarm[2])
        async with asyncio.TaskGroup() as group:
            running = group.create_task(swarm[2].run())
            await asyncio.sleep(200)
            assert own_record(swarm[2]) == first
            await asyncio.sleep(200)
            assert own_record(swarm[2]).sequence > first.sequence
            await asyncio.sleep(3600)
            swarm[0].forget_records()
            assert await swarm[0].find_peer(own_record(swarm[2]).peer) is not None
            running.cancel()

    run(body)


def test_a_record_that_nobody_holds_any_more_is_published_again(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(4)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(swarm[3].run())
            for peer in swarm:
                peer.forget_records()
            assert not await swarm[3].confirm()
            await asyncio.sleep(70)
            assert await swarm[3].confirm()
            running.cancel()

    run(body)


def test_after_a_long_sleep_the_record_comes_back_at_once(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        swarm = await peers.swarm(3)
        async with asyncio.TaskGroup() as group:
            running = group.create_task(swarm[2].run())
            await asyncio.sleep(1)
            clock.advance(8 * 3600)
            await asyncio.sleep(10)
            assert [record.peer for record in await swarm[0].find()] == [own_record(swarm[2]).peer]
            running.cancel()

    run(body)


def test_nothing_published_is_nothing_confirmed_or_renewed(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        peer = await peers.start(0)
        assert not await peer.confirm()
        async with asyncio.TaskGroup() as group:
            running = group.create_task(peer.run())
            await asyncio.sleep(3600)
            running.cancel()
        assert peer.statistics().records == 0

    run(body)


def test_addresses_that_make_no_record_are_the_users_to_mend_and_change_nothing(run: Run) -> None:
    async def body(peers: Any, network: MemoryDatagrams, clock: ManualClock) -> None:
        [peer] = await peers.swarm(1)
        before = own_record(peer)
        with pytest.raises(MisuseError, match="over 800"):
            await peer.publish([f"{'a' * 250}.example:{port}" for port in (1, 2, 3)], "peer")
        assert own_record(peer) == before

    run(body)
