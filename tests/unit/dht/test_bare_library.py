"""The faults of kademlia 2.2.3 and rpcudp 5.0.1, each on the library as it is.

Each test says what should be, and fails as it is marked: should a newer library mend one, the suite says so.
What is done here instead is in ``test_library_faults``, under the name of the same fault.
"""

import asyncio
import contextlib
import gc
import json
import random
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import kademlia.routing
import kademlia.storage
import pytest
import umsgpack
from kademlia.network import Server
from kademlia.node import Node
from kademlia.utils import digest
from rpcudp.exceptions import MalformedMessage

from swarm.testing.clock import ManualClock
from swarm.testing.loop import ManualLoop

WEEK = 604_800.0


class Wire:
    """Datagrams between servers in memory, 10 ms on their way, none over what UDP over IPv4 takes."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, int], asyncio.DatagramProtocol] = {}
        self.dead: set[tuple[str, int]] = set()
        self.lose = 0

    def transmit(self, data: bytes, source: tuple[str, int], address: tuple[str, int]) -> None:
        if self.lose or len(data) > 65_507 or {source, address} & self.dead:
            self.lose -= self.lose > 0
            return
        receiver = self.open.get(tuple(address))  # type: ignore[arg-type]
        if receiver is not None:
            asyncio.get_running_loop().call_later(0.01, receiver.datagram_received, data, source)


class Transport(asyncio.DatagramTransport):
    def __init__(self, wire: Wire, address: tuple[str, int]) -> None:
        super().__init__()
        self.wire, self.address = wire, address

    def sendto(self, data: Any, addr: Any = None) -> None:
        self.wire.transmit(bytes(data), self.address, addr)

    def close(self) -> None:
        self.wire.open.pop(self.address, None)


class Loop(ManualLoop):
    wire: Wire

    async def create_datagram_endpoint(self, protocol_factory: Any, local_addr: Any = None, **_: Any) -> Any:
        protocol = protocol_factory()
        transport = Transport(self.wire, local_addr)
        self.wire.open[local_addr] = protocol
        protocol.connection_made(transport)
        return transport, protocol


class Scene:
    def __init__(self, clock: ManualClock, wire: Wire) -> None:
        self.clock = clock
        self.wire = wire
        self.errors: list[Any] = []
        self._random = random.Random(1)

    async def server(self, number: int, **config: Any) -> Any:
        server = Server(node_id=self._random.randbytes(20), **config)
        await server.listen(7423, f"10.0.0.{number}")
        return server

    async def network(self, count: int) -> list[Any]:
        servers = [await self.server(number) for number in range(1, count + 1)]
        for server in servers[1:]:
            await server.bootstrap([("10.0.0.1", 7423)])
        return servers

    def kill(self, *numbers: int) -> None:
        self.wire.dead |= {(f"10.0.0.{number}", 7423) for number in numbers}

    def elapsed(self) -> float:
        return self.clock.elapsed()


Body = Callable[[Scene], Coroutine[Any, Any, None]]
Run = Callable[[Body], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    def runner(body: Body) -> None:
        clock, wire = ManualClock(), Wire()
        for module in (kademlia.storage, kademlia.routing):
            monkeypatch.setattr(module.time, "monotonic", clock.elapsed)

        def make() -> Loop:
            loop = Loop(clock)
            loop.wire = wire
            return loop

        async def main() -> None:
            scene = Scene(clock, wire)
            asyncio.get_running_loop().set_exception_handler(lambda _, context: scene.errors.append(context))
            await body(scene)

        with asyncio.Runner(loop_factory=make) as asyncio_runner:
            asyncio_runner.run(main())

    return runner


def fault(reason: str, raises: type[BaseException] = AssertionError) -> Any:
    return pytest.mark.xfail(strict=True, raises=raises, reason=reason)


@fault("set returns False and keeps nothing")
def test_a_lone_node_keeps_what_it_sets(run: Run) -> None:
    async def body(scene: Scene) -> None:
        lone = await scene.server(1)
        await lone.set("key", "value")
        assert await lone.get("key") == "value"

    run(body)


@fault("max() of nothing", ValueError)
def test_set_survives_that_all_known_nodes_are_gone(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(3)
        scene.kill(1, 2)
        await servers[2].set("key", "value")

    run(body)


@fault("the limit is found after the lookup, and raised out of set", MalformedMessage)
def test_a_large_value_is_refused_where_it_is_given(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(2)
        assert await servers[0].set("key", "v" * 9000) in {True, False}

    run(body)


@fault("a reply over what a datagram takes vanishes")
def test_what_a_node_holds_can_be_got_from_it(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(2)
        servers[0].storage[digest("key")] = "v" * 70_000
        assert await servers[1].get("key") is not None

    run(body)


@fault("its silence counts against it")
def test_a_node_that_holds_much_stays_known(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(2)
        servers[0].storage[digest("key")] = "v" * 70_000
        await servers[1].get("key")
        assert servers[1].bootstrappable_neighbors()

    run(body)


@fault("InvalidStateError out of the timer, and what is outstanding stays")
def test_a_cancelled_call_leaves_nothing(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(2)
        scene.kill(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await servers[1].protocol.ping(("10.0.0.1", 7423), servers[1].node.id)
        await asyncio.sleep(10.0)
        assert scene.errors == []
        assert servers[1].protocol._outstanding == {}

    run(body)


@fault("there are no versions")
def test_an_older_value_does_not_replace_a_newer_one(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(4)
        await servers[1].set("key", "old")
        await servers[2].set("key", "new")
        scene.kill(3, 4)
        holder = servers[1]
        holder.storage[digest("key")] = "old"
        await holder.set_digest(digest("key"), holder.storage[digest("key")])
        assert servers[0].storage[digest("key")] == "new"

    run(body)


@fault("a week")
def test_a_departed_writers_value_is_gone_within_hours(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(3)
        await servers[1].set("key", "value")
        scene.clock.advance(WEEK - 3600.0)
        assert servers[0].storage.get(digest("key")) is None

    run(body)


@fault("the last one wins")
def test_all_writers_under_a_key_are_found(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(5)
        for number, server in enumerate(servers):
            await server.set("key", f"writer {number}")
        assert {str(await server.get("key")) for server in servers} == {f"writer {n}" for n in range(5)}

    run(body)


@fault("the walk goes from bucket to bucket, not by distance")
def test_neighbours_are_the_closest_that_it_knows(run: Run) -> None:
    async def body(scene: Scene) -> None:
        source = random.Random(2)
        router = (await scene.server(1)).protocol.router
        for number in range(400):
            router.add_contact(Node(source.randbytes(20), "10.1.0.1", number + 1))
        known = [node for bucket in router.buckets for node in bucket.get_nodes()]
        missed = 0
        for _ in range(50):
            target = Node(source.randbytes(20))
            exact = sorted(known, key=target.distance_to)[:20]
            missed += len({node.id for node in exact} - {node.id for node in router.find_neighbors(target)})
        assert missed == 0

    run(body)


@fault("keys are hashed again, so that others are handed over")
def test_a_newcomer_is_handed_the_keys_that_it_is_closest_to(run: Run) -> None:
    async def body(scene: Scene) -> None:
        old, other = await scene.server(1, ksize=1), await scene.server(2, ksize=1)
        await other.bootstrap([("10.0.0.1", 7423)])
        for number in range(64):
            old.storage[digest(number)] = number
        newcomer = await scene.server(3, ksize=1)
        await newcomer.bootstrap([("10.0.0.1", 7423)])
        await asyncio.sleep(1.0)
        trio = (old.node, other.node, newcomer.node)
        first = [
            digest(number)
            for number in range(64)
            if [n.id for n in sorted(trio, key=Node(digest(number)).distance_to)][:2]
            == [newcomer.node.id, old.node.id]
        ]
        assert first
        assert set(first) <= set(newcomer.storage.data)

    run(body)


@fault("it waits five seconds, once")
def test_a_lost_datagram_costs_less_than_two_seconds(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(2)
        scene.wire.lose = 1
        began = scene.elapsed()
        await servers[1].protocol.call_ping(Node(servers[0].node.id, "10.0.0.1", 7423))
        assert scene.elapsed() - began < 2.0

    run(body)


@fault("the first silence evicts")
def test_a_lost_datagram_does_not_cost_the_contact(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(2)
        scene.wire.lose = 1
        await servers[1].protocol.call_ping(Node(servers[0].node.id, "10.0.0.1", 7423))
        assert servers[1].bootstrappable_neighbors()

    run(body)


@fault("MalformedMessage in a task that nobody owns")
def test_garbage_raises_nothing(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(1)
        servers[0].protocol.datagram_received(b"\x00" + bytes(20) + umsgpack.packb(7), ("203.0.113.5", 9))
        await asyncio.sleep(1.0)
        gc.collect()
        assert scene.errors == []

    run(body)


@fault("who knows the message id may answer from anywhere")
def test_an_answer_counts_only_from_where_it_was_asked(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(1)
        answer = servers[0].protocol.ping(("10.0.0.99", 7423), servers[0].node.id)
        [message] = servers[0].protocol._outstanding
        servers[0].protocol.datagram_received(
            b"\x01" + message + umsgpack.packb(b"x" * 20), ("203.0.113.5", 9)
        )
        assert (await answer)[0] is False

    run(body)


@fault("ids are claims")
def test_nobody_enters_the_table_under_the_id_of_another(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(1)
        servers[0].protocol.rpc_ping(("203.0.113.5", 9), b"somebody elses id..."[:20])
        assert servers[0].bootstrappable_neighbors() == []

    run(body)


@fault("values are anybody's, and as many as they like")
def test_what_strangers_store_is_bounded(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(1)
        for number in range(20_000):
            servers[0].protocol.rpc_store(("203.0.113.5", 9), bytes(20), digest(number), "v" * 800)
        assert len(servers[0].storage.data) <= 65 * 64

    run(body)


@fault("the state file is a serialised object", ValueError)
def test_a_state_file_is_data(run: Run, tmp_path: Path) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(2)
        servers[0].save_state(str(tmp_path / "state"))
        json.loads((tmp_path / "state").read_bytes())

    run(body)


@fault("an empty list, after five seconds")
def test_a_dead_bootstrap_address_is_an_error(run: Run) -> None:
    async def body(scene: Scene) -> None:
        server = await scene.server(1)
        with contextlib.suppress(OSError):
            assert await server.bootstrap([("10.0.0.99", 7423)]) != []

    run(body)


@fault("it waits for whole rounds, and for the dead in each")
def test_a_set_after_half_have_stopped_takes_less_than_two_seconds(run: Run) -> None:
    async def body(scene: Scene) -> None:
        servers = await scene.network(30)
        scene.kill(*range(1, 31, 2))
        began = scene.elapsed()
        await servers[1].set("key", "value")
        assert scene.elapsed() - began < 2.0

    run(body)
