"""Members who attack discovery, and strangers who do, on whole nodes over datagrams in memory."""

import asyncio
import heapq
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm.dht.addresses import Address
from swarm.dht.calls import Target
from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.dht.limits import ADDRESS_BURST, K
from swarm.dht.messages import (
    Answer,
    FindNodes,
    FindRecords,
    NodeAddress,
    Nodes,
    Ping,
    Pong,
    Question,
    Records,
    Request,
    Store,
    Stored,
)
from swarm.dht.proof import node_id
from swarm.dht.protocol import Protocol
from swarm.dht.reachability import Reachability
from swarm.dht.table import Contact, Table, distance
from swarm.errors import RemoteTimeoutError
from swarm.identity.keys import PrivateKey
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock
from swarm.wire.limits import MAX_RECORD_BYTES
from swarm.wire.records.peer import MAX_RECORD_LIFETIME, MAX_RECORD_SKEW

HONEST = 100
HOSTILE = 1000
PREFIXES = 4


class Scene:
    """Honest peers, each in a /24 of its own, and what hostile ones need."""

    def __init__(self, clock: ManualClock, epoch_key: bytes, swarm: Any) -> None:
        self.clock = clock
        self.network = MemoryDatagrams(delay=0.005, remember=False)
        self.epoch_key = epoch_key
        self.swarm = swarm
        self.peers: list[Discovery] = []
        self.keys: list[PrivateKey] = []

    @staticmethod
    def host(number: int) -> str:
        return f"26.{number // 250}.{number % 250}.1"

    async def start(self, number: int) -> Discovery:
        key = PrivateKey.from_raw((number + 1).to_bytes(32, "big"))
        config = DiscoveryConfig(swarm=self.swarm, listen=(self.host(number),))
        peer = Discovery(config, key=key, clock=self.clock, network=self.network)
        peer.set_epoch(1, self.epoch_key)
        await peer.start()
        self.keys.append(key)
        self.peers.append(peer)
        return peer

    async def honest(self, count: int) -> None:
        """So many peers, who have joined and published."""
        for number in range(count):
            peer = await self.start(number)
            await peer.join([f"{self.host(0)}:7423"] if number else [])
        for number, peer in enumerate(self.peers):
            await peer.publish([f"{self.host(number)}:7423"], "peer")


class Gang:
    """Hostile members that know each other: they prove their ids, and lie in all that they say."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.protocols: list[Protocol] = []
        self.addresses: dict[bytes, Address] = {}
        self.asked = 0

    async def gather(self, keys: list[PrivateKey], *, prefixes: int) -> None:
        for number, key in enumerate(keys):
            node = node_id(key.public)
            protocol = Protocol(
                key,
                clock=self.scene.clock,
                table=Table(node, clock=self.scene.clock),
                reachability=Reachability("always", clock=self.scene.clock),
                answer=self.answer,
            )
            protocol.sealer.set_epoch(1, self.scene.epoch_key)
            address = Address.of(f"66.0.{number % prefixes}.{number // prefixes % 250 + 1}", 7000 + number)
            endpoint = await self.scene.network.open((address.host,), address.port, protocol.on_datagram)
            protocol.endpoint = endpoint
            self.protocols.append(protocol)
            self.addresses[node] = address

    def answer(self, question: Question, asker: Contact) -> Answer:
        self.asked += 1
        match question:
            case Ping():
                return Pong()
            case FindNodes():
                return Nodes(tuple(self.named(question.target)))
            case FindRecords():
                return Records((), b"")
            case Store():
                return Stored((0,) * len(question.records))

    def named(self, target: bytes) -> list[NodeAddress]:
        nearest = heapq.nsmallest(K, self.addresses, key=lambda node: distance(node, target))
        return [NodeAddress(node, self.addresses[node].pack()) for node in nearest]

    async def push(self, victims: list[str], *, each: int) -> None:
        """Enter the victims' tables: each of the gang calls some of them."""
        for number, protocol in enumerate(self.protocols):
            for turn in range(each):
                host = victims[(number * each + turn) % len(victims)]
                await protocol.calls.call(Target(node=None, address=Address.of(host, 7423)), Ping())


Body = Callable[[Scene], Coroutine[Any, Any, None]]
Run = Callable[[Body], None]


@pytest.fixture
def run(epoch_key: bytes, swarm: Any) -> Run:
    def runner(body: Body) -> None:
        async def main(clock: ManualClock) -> None:
            errors: list[Any] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
            await body(Scene(clock, epoch_key, swarm))
            assert errors == []
            assert len(asyncio.all_tasks()) == 1

        run_on_manual_clock(main)

    return runner


def close_keys(target: bytes, count: int) -> list[PrivateKey]:
    """The closest to ``target`` of a few times as many: closer than nearly all that did not choose."""
    made = [PrivateKey.from_raw((10**9 + number).to_bytes(32, "big")) for number in range(8 * count)]
    return heapq.nsmallest(count, made, key=lambda key: distance(node_id(key.public), target))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_thousand_ids_around_a_key_hide_no_honest_record(run: Run) -> None:
    async def body(scene: Scene) -> None:
        await scene.honest(HONEST)
        victim = scene.peers[7]._node
        shard = victim.rendezvous.shard_of(victim.id)
        gang = Gang(scene)
        await gang.gather(close_keys(shard, HOSTILE), prefixes=PREFIXES)
        everybody = [*gang.addresses, *(peer._node.id for peer in scene.peers)]
        closest = heapq.nsmallest(K, everybody, key=lambda node: distance(node, shard))
        assert set(closest) <= set(gang.addresses), "all that is close to the key is hostile"
        await gang.push([scene.host(number) for number in range(HONEST)], each=3)
        for peer in scene.peers:
            peer._node.table.check()
        for number in (7, *range(0, HONEST, 9)):
            assert await scene.peers[number].publish([f"{scene.host(number)}:1"], "peer") > 0
        readers = scene.peers[3::8]
        for reader in readers:
            found = await reader.find_peer(scene.keys[7].peer)
            assert found is not None
            assert found.addresses == (f"{scene.host(7)}:1",)
        assert gang.asked > 10 * len(readers), "they were in the way"
        newcomer = await scene.start(HONEST)
        await newcomer.join([f"{scene.host(50)}:7423"])
        for number in (7, *range(0, HONEST, 9)):
            assert await newcomer.find_peer(scene.keys[number].peer) is not None

    run(body)


def test_a_seed_that_lies_keeps_nobody_out_who_has_another(run: Run) -> None:
    async def body(scene: Scene) -> None:
        await scene.honest(10)
        liar = Gang(scene)
        await liar.gather([PrivateKey.from_raw((10**9).to_bytes(32, "big"))], prefixes=1)
        made_up = {bytes([number]) * 20: Address.of(f"66.1.{number}.1", 7423) for number in range(200)}
        [seed] = liar.addresses.values()
        liar.addresses |= made_up
        newcomer = await scene.start(10)
        await newcomer.join([str(seed), f"{scene.host(3)}:7423"])
        assert await newcomer.publish([f"{scene.host(10)}:7423"], "peer") > 0
        assert await newcomer.confirm()
        assert len(await newcomer.find()) == 11
        assert not made_up.keys() & {contact.id for contact in newcomer._node.table.contacts()}

    run(body)


def test_a_seed_that_lies_alone_is_found_out(run: Run) -> None:
    async def body(scene: Scene) -> None:
        liar = Gang(scene)
        await liar.gather([PrivateKey.from_raw((10**9).to_bytes(32, "big"))], prefixes=1)
        [seed] = liar.addresses.values()
        newcomer = await scene.start(0)
        await newcomer.join([str(seed)])
        assert await newcomer.publish([f"{scene.host(0)}:7423"], "peer") == 0
        assert not await newcomer.confirm()

    run(body)


def test_records_that_nobody_should_send_displace_none_and_are_not_read(
    run: Run, make_record: Callable[..., bytes]
) -> None:
    async def body(scene: Scene) -> None:
        await scene.honest(6)
        wall = scene.clock.wall()
        attacker, victim, number = scene.peers[1]._node, scene.peers[4]._node, 5
        [good] = [
            one
            for one in attacker.storage.read(attacker.rendezvous.meeting, now=wall)
            if one.publisher == victim.id
        ]
        far = MAX_RECORD_SKEW + 60
        bad = {
            "forged": good.data[:-3] + bytes([good.data[-3] ^ 1]) + good.data[-2:],
            "signed by another": make_record(99, wall=wall)[:64] + good.data[64:],
            "replayed": make_record(number, wall=wall - 600, expires=wall + 600),
            "back-dated": make_record(number, wall=wall - MAX_RECORD_LIFETIME - 60, expires=wall + 60),
            "far in the future": make_record(number, wall=wall + far, expires=wall + far + 60),
            "for ever": make_record(number, wall=wall + 1, expires=wall + 2 * MAX_RECORD_LIFETIME),
            "oversized": make_record(number, wall=wall + 1) + bytes(MAX_RECORD_BYTES),
        }
        for what, record in bad.items():
            for contact in attacker.table.contacts():
                for key in attacker.rendezvous.keys_of(victim.id):
                    held = await attacker.store(contact, key, [record])
                    assert held == [good.record.sequence if what == "replayed" else 0], what
        for peer in scene.peers:
            peer._node.storage.check()
            found = await peer.find_peer(scene.keys[4].peer)
            assert found is not None
            assert found.addresses == (f"{scene.host(4)}:7423",)

    run(body)


def test_a_flood_from_inside_is_answered_so_far_and_others_are_served(run: Run) -> None:
    async def body(scene: Scene) -> None:
        await scene.honest(3)
        gang = Gang(scene)
        await gang.gather([PrivateKey.from_raw((10**9).to_bytes(32, "big"))], prefixes=1)
        [flooder] = gang.protocols
        target = Target(node=None, address=Address.of(scene.host(0), 7423))
        await flooder.calls.call(target, Ping())
        before = scene.peers[0].statistics().datagrams["sent"]
        for number in range(5000):
            request = Request(
                message=number.to_bytes(16, "big"),
                storing=True,
                prove=False,
                cookie=b"",
                proof=None,
                question=Ping(),
            )
            flooder._transmit(request, flooder.sealer.best(None), target.address)
        await asyncio.sleep(0.5)
        statistics = scene.peers[0].statistics().datagrams
        assert statistics["sent"] - before <= ADDRESS_BURST + 50
        assert statistics["refused_rate"] >= 4500
        assert await scene.peers[1].publish(["h:1"], "peer") == 2
        with pytest.raises(RemoteTimeoutError):
            await asyncio.gather(*(flooder.calls.call(target, Ping()) for _ in range(1000)))

    run(body)
