"""Each fault of kademlia 2.2.3 and rpcudp 5.0.1 that is known, and that ours does not have it.

A test's name says what the library does; its body shows what is done here instead.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from swarm.dht.addresses import Address
from swarm.dht.calls import Target
from swarm.dht.limits import MAX_DATAGRAM_BYTES, MAX_PUBLISHERS
from swarm.dht.messages import Ping, Pong, Reply
from swarm.dht.storage import check_record
from swarm.dht.table import distance
from swarm.errors import FailureError, MisuseError, RemoteProtocolError, RemoteTimeoutError
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

Body = Callable[["Scene"], Coroutine[Any, Any, None]]
Run = Callable[..., None]


class Scene:
    def __init__(self, clock: ManualClock, network: MemoryDatagrams, make_peers: Any) -> None:
        self.clock = clock
        self.network = network
        self.peers = make_peers(clock, network)
        self.errors: list[dict[str, Any]] = []


@pytest.fixture
def run(make_peers: Any) -> Run:
    def runner(body: Body, **faults: Any) -> None:
        async def main(clock: ManualClock) -> None:
            scene = Scene(clock, MemoryDatagrams(**faults), make_peers)
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: scene.errors.append(context))
            await body(scene)
            await asyncio.sleep(10)
            assert scene.errors == []

        run_on_manual_clock(main)

    return runner


def test_fault_a_lone_nodes_set_returns_false_and_keeps_nothing(run: Run) -> None:
    async def body(scene: Scene) -> None:
        lone = await scene.peers.start(0)
        await lone.join([])
        assert await lone.publish(["10.0.0.1:7423"], "bootstrap") == 0
        [record] = await lone.find()
        assert record.addresses == ("10.0.0.1:7423",)

    run(body)


def test_fault_set_raises_value_error_once_all_known_nodes_are_gone(run: Run) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(3)
        scene.network.unplugged |= {scene.peers.host(0), scene.peers.host(1)}
        for _ in range(8):
            assert await swarm[2].publish(["10.0.0.3:1"], "peer") == 0
        newest = (await swarm[2].find())[0]
        assert newest.addresses == ("10.0.0.3:1",)

    run(body)


def test_fault_requests_over_8192_bytes_raise_out_of_set(run: Run) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(2)
        with pytest.raises(MisuseError, match="advertise fewer or shorter"):
            await swarm[1].publish([f"{'a' * 250}.example:{port}" for port in (1, 2, 3)], "peer")
        largest = [f"{'a' * 240}.example:{port}" for port in (1, 2)]
        assert await swarm[1].publish(largest, "peer") == 1

    run(body)


def test_fault_larger_replies_vanish_and_evict_healthy_nodes(
    run: Run, make_record: Callable[..., bytes]
) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(3)
        node = swarm[0]._node
        wall = scene.clock.wall()
        addresses = tuple(f"{'a' * 60}.example:{port}" for port in range(8))
        for number in range(100, 100 + MAX_PUBLISHERS - 3):
            record = make_record(number, wall=wall, addresses=addresses)
            assert node.storage.offer(node.rendezvous.meeting, record, now=wall)
        assert node.storage.stored_bytes > 30 * MAX_DATAGRAM_BYTES
        assert len(await swarm[2].find()) == MAX_PUBLISHERS
        assert swarm[2].statistics().contacts == 2
        assert max(len(data) for _, _, data in scene.network.sent) <= MAX_DATAGRAM_BYTES

    run(body)


def test_fault_cancelling_a_call_leaves_invalid_state_error_and_a_leak(run: Run) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(10)
        scene.network.unplugged.add(scene.peers.host(3))
        for delay in (0.0, 0.01, 0.03, 0.4, 0.7):
            for action in (swarm[1].find, swarm[1].confirm, lambda: swarm[1].publish(["h:1"], "peer")):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay):
                        await action()
        assert len(swarm[1]._node.protocol.calls) == 0
        assert len(asyncio.all_tasks()) == 1

    run(body)


def test_fault_an_old_republish_overwrites_newer_values(run: Run, make_record: Callable[..., bytes]) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(4)
        node = swarm[0]._node
        old = [one.data for one in node.storage.read(node.rendezvous.meeting, now=scene.clock.wall())]
        for number, peer in enumerate(swarm):
            await peer.publish([f"10.0.0.{number}:9"], "peer")
        for other in swarm:
            for contact in await other._node.closest(node.rendezvous.meeting):
                await other._node.store(contact, node.rendezvous.meeting, old)
        for peer in swarm:
            assert {record.addresses[0][-2:] for record in await peer.find()} == {":9"}

    run(body)


def test_fault_values_live_for_a_week(run: Run) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(4)
        scene.clock.advance(1800)
        assert [await peer.find() for peer in swarm] == [[]] * 4

    run(body)


def test_fault_several_writers_under_one_key_lose_all_but_one(run: Run) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(12)
        for peer in swarm:
            assert len(await peer.find()) == 12

    run(body)


def test_fault_find_neighbors_misses_a_fifth_of_the_k_closest(run: Run) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(40)
        for peer in swarm:
            table = peer._node.table
            for other in swarm[:10]:
                target = other._node.id
                everybody = sorted(
                    (one.id for one in table.contacts()), key=lambda one: distance(one, target)
                )
                assert [one.id for one in table.closest(target)] == everybody[:20]

    run(body)


def test_fault_newcomers_are_handed_the_wrong_keys(run: Run, make_record: Callable[..., bytes]) -> None:
    async def body(scene: Scene) -> None:
        holder = await scene.peers.start(0)
        keys = set()
        for number in range(30):
            record = make_record(100 + number, wall=scene.clock.wall())
            publisher = check_record(record, swarm=holder._node.swarm, now=scene.clock.wall()).publisher
            keys |= set(holder._node.rendezvous.keys_of(publisher))
            for key in keys:
                with contextlib.suppress(RemoteProtocolError):
                    holder._node.storage.offer(key, record, now=scene.clock.wall())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(holder.run())
            newcomer = await scene.peers.start(1)
            await newcomer.join([scene.peers.seed(0)])
            await asyncio.sleep(5)
            running.cancel()
        assert set(newcomer._node.storage.held_keys()) == keys

    run(body)


def test_fault_one_lost_datagram_costs_five_seconds_and_the_contact(run: Run) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(2)
        calls, contact = swarm[1]._node.protocol.calls, swarm[1]._node.table.contacts()[0]
        for side in (0, 1):
            scene.network.unplugged.add(scene.peers.host(side))
            loop = asyncio.get_running_loop()
            loop.call_later(0.2, scene.network.unplugged.clear)
            started = scene.clock.elapsed()
            await calls.call(Target(node=contact.id, address=contact.address), Ping())
            assert scene.clock.elapsed() - started < 0.5
        assert swarm[1].statistics().contacts == 1

    run(body)


def test_fault_a_contact_is_dropped_at_its_first_silence(run: Run) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(5)
        scene.network.unplugged.add(scene.peers.host(0))
        await swarm[1].find()
        scene.network.unplugged.clear()
        assert swarm[1].statistics().contacts == 4

    run(body)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\x00" * 10,
        b"\x00" + bytes(20) + b"\xc1",
        b"\x00" + bytes(20) + b"\x80",
        b"\x00" + bytes(20) + b"\x92\xa4ping\x90",
        b"\x01" + bytes(20) + b"\xff" * 500,
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x02" + bytes(1199),
        bytes(65507),
    ],
)
def test_fault_garbage_datagrams_raise_in_tasks_that_nobody_owns(run: Run, garbage: bytes) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(2)
        sent = len(scene.network.sent)
        for _ in range(50):
            scene.network.transmit(garbage, Address.of("203.0.113.5", 9), Address.of("10.0.0.1", 7423))
        await asyncio.sleep(1)
        assert len(scene.network.sent) == sent + 50
        assert len(asyncio.all_tasks()) == 1
        assert await swarm[1].confirm()

    run(body)


def test_fault_responses_match_by_message_id_whoever_sends_them(run: Run, make_insider: Any) -> None:
    """An insider that reads a question on the wire cannot answer it, from its own or from any address."""

    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(2)
        insider = make_insider(scene.network, scene.clock, number=66, host="10.9.9.9")
        calls, contact = swarm[1]._node.protocol.calls, swarm[1]._node.table.contacts()[0]
        scene.network.unplugged.add(contact.address.host)
        loop = asyncio.get_running_loop()
        own = Address.of(scene.peers.host(1), 7423)

        def interfere() -> None:
            [message] = calls._sent
            forged = Reply(message=message, storing=True, proof=None, answer=Pong())
            insider.send(forged, own)
            insider.sealer._node = contact.id
            insider.sealer._own.clear()
            insider.send(forged, own)
            scene.network.unplugged.clear()
            insider.send(forged, own, source=contact.address)
            scene.network.unplugged.add(contact.address.host)

        loop.call_later(0.05, interfere)
        with pytest.raises(RemoteTimeoutError):
            await calls.call(Target(node=contact.id, address=contact.address), Ping())
        assert swarm[1].statistics().datagrams["refused_content"] == 3

    run(body)


def test_fault_values_are_unauthenticated_and_storage_is_unbounded(
    run: Run, make_record: Callable[..., bytes]
) -> None:
    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(2)
        attacker, victim = swarm[1]._node, swarm[0]._node
        contact = attacker.table.contacts()[0]
        wall = scene.clock.wall()
        good = make_record(100, wall=wall)
        forged = [make_record(101, wall=wall)[:64] + good[64:], good[:64] + bytes(100), b"value"]
        assert await attacker.store(contact, victim.rendezvous.meeting, forged) == [0, 0, 0]
        flood = [make_record(200 + number, wall=wall) for number in range(300)]
        await attacker.store(contact, victim.rendezvous.meeting, flood)
        victim.storage.check()
        assert len(victim.storage.read(victim.rendezvous.meeting, now=wall)) <= MAX_PUBLISHERS + 1
        key = victim.rendezvous.shard_of(check_record(good, swarm=victim.swarm, now=wall).publisher)
        for _ in range(3):
            await attacker.store(contact, key, [good] * 5)
            assert await attacker.store(contact, bytes(20), [good]) == [0]
        assert len(victim.storage.read(key, now=wall)) == 1
        assert victim.storage.read(bytes(20), now=wall) == []

    run(body)


def test_fault_state_files_are_serialised_objects(run: Run, tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        await scene.peers.swarm(3)
        peer = await scene.peers.start(9, state=tmp_path / "contacts.json")
        await peer.join([scene.peers.seed(0)])
        await peer.aclose()
        state = json.loads((tmp_path / "contacts.json").read_text())
        assert {entry["address"] for entry in state["contacts"]} == {
            scene.peers.seed(number) for number in range(3)
        }

    run(body)


def test_fault_a_dead_bootstrap_address_returns_nothing_without_an_error(run: Run) -> None:
    async def body(scene: Scene) -> None:
        peer = await scene.peers.start(0)
        with pytest.raises(FailureError, match=r"10\.0\.0\.99:7423 \(10\.0\.0\.99:7423, IPv4\): no answer"):
            await peer.join(["10.0.0.99:7423"])

    run(body)


def test_fault_lookups_wait_for_whole_rounds_and_dead_calls_count_against_alpha(run: Run) -> None:
    """With rounds of three and waits of at least 0.6 s, 15 dead of 30 take 3 s or more."""

    async def body(scene: Scene) -> None:
        swarm = await scene.peers.swarm(30)
        for number in range(0, 30, 2):
            scene.network.unplugged.add(scene.peers.host(number))
        started = scene.clock.elapsed()
        assert len(await swarm[1].find()) == 30
        assert scene.clock.elapsed() - started < 1.2
        started = scene.clock.elapsed()
        assert await swarm[5].publish(["10.0.0.6:7423"], "peer") == 14
        assert scene.clock.elapsed() - started < 1.2

    run(body)


def test_fault_pings_are_sent_from_tasks_that_nobody_owns_when_a_bucket_is_full(run: Run) -> None:
    async def body(scene: Scene) -> None:
        peer = await scene.peers.start(0)
        node = peer._node
        node.table.ksize = 4
        node.table.flush()
        others = [await scene.peers.start(number) for number in range(1, 120)]
        for number, other in enumerate(others, 1):
            target = Target(node=other._node.id, address=Address.of(scene.peers.host(number), 7423))
            await node.protocol.calls.call(target, Ping())
        assert any(bucket.replacement_nodes for bucket in node.table.buckets)
        assert len(asyncio.all_tasks()) == 1
        node.table.check()

    run(body)
