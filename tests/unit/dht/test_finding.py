import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm.dht.finding import FULL, SHARDS_A_LOOK
from swarm.dht.limits import MAX_PUBLISHERS
from swarm.dht.rendezvous import SHARDS
from swarm.dht.storage import check_record
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

Body = Callable[[Any, ManualClock], Coroutine[Any, Any, None]]
Run = Callable[[Body], None]
MANY = MAX_PUBLISHERS + 40


@pytest.fixture
def run(make_peers: Any) -> Run:
    def runner(body: Body) -> None:
        async def main(clock: ManualClock) -> None:
            await body(make_peers(clock, MemoryDatagrams(delay=0.001)), clock)

        run_on_manual_clock(main)

    return runner


@pytest.fixture
def many(make_record: Callable[..., bytes]) -> Callable[[Any], Coroutine[Any, Any, tuple[Any, set[str]]]]:
    async def make(peers: Any) -> tuple[Any, set[str]]:
        """A reader, and the ids of more publishers than one key holds, itself among them."""
        nodes = [await peers.start(number) for number in range(8)]
        for number, node in enumerate(nodes):
            await node.join([peers.seed(0)] if number else [])
        reader = nodes[3]
        wall = peers.clock.wall()
        published = {reader._publishing._key.peer}
        for record in (make_record(number, wall=wall - 1) for number in range(100, 100 + MANY)):
            held = check_record(record, swarm=reader._node.swarm, now=wall)
            published.add(held.record.peer)
            for node in nodes:
                for key in reader._node.rendezvous.keys_of(held.publisher):
                    node._node.storage.offer(key, record, now=wall)
        await reader.publish([peers.seed(3)], "peer")
        reader._node.storage.clear()
        return reader, published

    return make


def test_more_publishers_than_a_key_holds_are_all_found_at_once_or_by_and_by(run: Run, many: Any) -> None:
    async def body(peers: Any, clock: ManualClock) -> None:
        reader, published = await many(peers)
        assert len(published) > MAX_PUBLISHERS
        assert {record.peer for record in await reader.find(thorough=True)} == published
        reader._finding.forget()
        calls = reader.statistics().calls
        first = {record.peer for record in await reader.find()}
        assert FULL <= len(first) < len(published)
        assert reader.statistics().calls - calls < (1 + SHARDS_A_LOOK) * 3 * 8
        for _ in range(SHARDS // SHARDS_A_LOOK - 1):
            found = await reader.find()
        assert {record.peer for record in found} == published

    run(body)


def test_each_of_many_is_found_by_its_id_with_one_lookup(run: Run, many: Any) -> None:
    async def body(peers: Any, clock: ManualClock) -> None:
        reader, published = await many(peers)
        for peer in published:
            calls = reader.statistics().calls
            record = await reader.find_peer(peer)
            assert record is not None
            assert record.peer == peer
            assert reader.statistics().calls - calls <= 2 * 8
        assert await reader.find_peer("a" * 32) is None

    run(body)


def test_what_was_found_is_kept_until_it_expires_and_no_longer(run: Run, many: Any) -> None:
    async def body(peers: Any, clock: ManualClock) -> None:
        reader, published = await many(peers)
        await reader.find(thorough=True)
        async with asyncio.TaskGroup() as group:
            looks = [group.create_task(reader.find()) for _ in range(2)]
        assert {record.peer for record in looks[0].result()} == published
        clock.advance(1800.0)
        assert await reader.find() == []

    run(body)


def test_the_newest_record_counts_wherever_it_is_found(run: Run, many: Any) -> None:
    async def body(peers: Any, clock: ManualClock) -> None:
        reader, _ = await many(peers)
        await reader.find(thorough=True)
        clock.advance(1.0)
        await reader.publish(["198.51.100.1:1"], "peer")
        [own] = [one for one in await reader.find() if one.peer == reader._publishing._key.peer]
        assert own.addresses == ("198.51.100.1:1",)

    run(body)


def test_who_is_not_found_while_hardly_anybody_answers_is_looked_for_again(run: Run) -> None:
    async def body(peers: Any, clock: ManualClock) -> None:
        nodes = await peers.swarm(8)
        reader, wanted = nodes[3], nodes[5]._publishing._key.peer
        reader._node.storage.clear()
        find_nodes, calls = reader._node.closest, []

        async def closest(target: bytes) -> Any:
            peers.network.loss = 0.0
            contacts = await find_nodes(target)
            calls.append(target)
            peers.network.loss = float(len(calls) == 1)
            return contacts

        reader._node.closest = closest
        found = await reader.find_peer(wanted)
        assert found is not None
        assert found.peer == wanted
        assert len(calls) == 2
        assert await reader.find_peer("a" * len(wanted)) is None
        assert len(calls) == 3

    run(body)
