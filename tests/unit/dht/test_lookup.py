import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm.dht import lookup as module
from swarm.dht.addresses import Address
from swarm.dht.calls import Target
from swarm.dht.limits import LOOKUP_SECONDS, MAX_ALPHA, MAX_LOOKUP_CALLS, K
from swarm.dht.lookup import Lookup
from swarm.dht.messages import Challenge, Datagram, NodeAddress, Nodes, Ping, Pong, Reply, Request
from swarm.dht.proof import answering_statement, make_proof
from swarm.dht.seal import Opened
from swarm.dht.table import Contact, distance
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

TARGET = b"\x5a" * 20


class Scene:
    """Nodes 1 to ``count``, each of which knows a few random others; node 0 looks things up."""

    def __init__(self, clock: ManualClock, make_bare: Any, network: MemoryDatagrams, count: int) -> None:
        self.clock = clock
        self.network = network
        self.nodes = [make_bare(network, clock, number, storing=True) for number in range(1, count + 2)]
        self.own = self.nodes[0]

    async def open(self, *, seed: int, acquaintances: int) -> None:
        source = random.Random(seed)
        for node in self.nodes:
            await node.open()
        for node in self.nodes[1:]:
            for other in source.sample(self.nodes[1:], acquaintances):
                if other is not node:
                    node.table.add_contact(self.contact(other))
        for other in source.sample(self.nodes[1:], 3):
            self.own.table.add_contact(self.contact(other))

    @staticmethod
    def contact(node: Any) -> Contact:
        return Contact(node.table.node.id, node.address, boot=node.protocol.sealer.boot, storing=True)

    def closest(self, nodes: list[Any], k: int = K) -> list[bytes]:
        ids = [node.table.node.id for node in nodes]
        return sorted(ids, key=lambda node: distance(node, TARGET))[:k]

    async def look_up(self) -> tuple[list[bytes], float]:
        started = self.clock.elapsed()
        found = await Lookup(self.own.protocol, self.own.table, TARGET).run()
        return [contact.id for contact in found], self.clock.elapsed() - started


Body = Callable[[Scene], Coroutine[Any, Any, None]]
Run = Callable[..., None]


@pytest.fixture
def run(make_bare: Any) -> Run:
    def runner(body: Body, *, count: int = 100, acquaintances: int = 30, **network: Any) -> None:
        async def main(clock: ManualClock) -> None:
            scene = Scene(clock, make_bare, MemoryDatagrams(**network), count)
            await scene.open(seed=1, acquaintances=acquaintances)
            await body(scene)
            assert len(scene.own.protocol.calls) == 0

        run_on_manual_clock(main)

    return runner


def test_the_exact_k_closest_of_all_are_found(run: Run) -> None:
    async def body(scene: Scene) -> None:
        found, seconds = await scene.look_up()
        assert found == scene.closest(scene.nodes[1:])
        assert seconds < 1.0

    run(body)


def test_a_network_smaller_than_k_is_found_whole(run: Run) -> None:
    async def body(scene: Scene) -> None:
        found, _ = await scene.look_up()
        assert found == scene.closest(scene.nodes[1:])
        assert len(found) == 7

    run(body, count=7, acquaintances=4)


def test_nobody_known_is_nobody_found(run: Run) -> None:
    async def body(scene: Scene) -> None:
        scene.own.table.flush()
        assert await scene.look_up() == ([], 0.0)

    run(body, count=5, acquaintances=2)


def test_nobody_who_answers_is_nobody_found(run: Run) -> None:
    async def body(scene: Scene) -> None:
        scene.network.loss = 1.0
        found, seconds = await scene.look_up()
        assert found == []
        assert seconds <= 3.0

    run(body)


def test_the_only_one_that_is_known_is_asked_again_where_datagrams_were_lost(run: Run) -> None:
    async def body(scene: Scene) -> None:
        for contact in scene.own.table.contacts()[1:]:
            scene.own.table.remove_contact(contact)
        scene.network.loss = 1.0
        loop = asyncio.get_running_loop()
        loop.call_later(1.5, setattr, scene.network, "loss", 0.0)
        found, seconds = await scene.look_up()
        assert len(found) == K
        assert seconds < LOOKUP_SECONDS

    run(body)


def test_those_passed_over_are_asked_where_they_are_most_of_whom_is_known(run: Run) -> None:
    async def body(scene: Scene) -> None:
        everybody, contacts = scene.nodes[1:], scene.own.protocol.contacts
        contacts.last_heard = scene.clock.elapsed()
        for node in everybody:
            scene.own.table.add_contact(scene.contact(node))
        for node in everybody[5:]:
            contacts.silent(node.table.node.id, node.address, since=-1.0)
        found, _ = await scene.look_up()
        assert set(found) == set(scene.closest(everybody))

    run(body)


@pytest.mark.parametrize("seed", range(3))
def test_lost_datagrams_cost_time_and_few_results(run: Run, seed: int) -> None:
    async def body(scene: Scene) -> None:
        found, _ = await scene.look_up()
        expected = scene.closest(scene.nodes[1:], 2 * K)
        assert len(found) == K
        assert set(found) <= set(expected)
        assert found == sorted(found, key=lambda node: distance(node, TARGET))

    run(body, loss=0.1, seed=seed)


def test_after_half_have_stopped_the_live_closest_are_found_without_waiting_in_turn(run: Run) -> None:
    async def body(scene: Scene) -> None:
        for node in scene.nodes[1:]:
            await node.protocol.calls.call(Target(node=None, address=scene.own.address), Ping())
        for node in scene.nodes[2::2]:
            scene.network.unplugged.add(node.address.host)
        found, seconds = await scene.look_up()
        alive = scene.closest(scene.nodes[1::2])
        assert found == alive
        assert seconds < 1.5
        found, seconds = await scene.look_up()
        assert found == alive
        assert seconds < 0.5

    run(body, acquaintances=60)


def test_no_more_than_the_limit_are_asked_at_a_time(run: Run) -> None:
    async def body(scene: Scene) -> None:
        waiting: list[int] = []
        calls = scene.own.protocol.calls
        ask = calls._request

        def counted(call: Any) -> None:
            ask(call)
            waiting.append(sum(not sent.call.doubted for sent in calls._sent.values()))

        calls._request = counted
        for node in scene.nodes[2::2]:
            scene.network.unplugged.add(node.address.host)
        await scene.look_up()
        assert max(waiting[:3]) <= 3
        assert 3 < max(waiting) <= MAX_ALPHA

    run(body)


def test_a_lookup_ends_with_what_it_has_when_its_time_is_up(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_SECONDS", 0.1)

    async def body(scene: Scene) -> None:
        found, seconds = await scene.look_up()
        assert seconds == pytest.approx(0.1)
        assert 0 < len(found) < K

    run(body)


def test_a_lookup_asks_no_more_nodes_than_its_limit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LOOKUP_CALLS", 10)

    async def body(scene: Scene) -> None:
        found, _ = await scene.look_up()
        assert scene.own.protocol.calls.made == 10
        assert len(found) == 10

    run(body)


def test_cancelling_leaves_nothing_behind(run: Run) -> None:
    async def body(scene: Scene) -> None:
        errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        for delay in (0.0, 0.005, 0.015, 0.03, 0.05):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(delay):
                    await scene.look_up()
            assert len(scene.own.protocol.calls) == 0
        await asyncio.sleep(10)
        assert errors == []
        assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()

    run(body)


class Liar:
    """A member that answers each search for nodes with what ``story`` makes up."""

    def __init__(self, insider: Any, story: Callable[[], list[NodeAddress]]) -> None:
        self.insider = insider
        self.story = story
        self.asked = 0

    def on(self, datagram: Datagram, opened: Opened, source: Address) -> None:
        if not isinstance(datagram, Request):
            return
        self.asked += 1
        statement = answering_statement(
            answering=self.insider.node,
            boot=self.insider.sealer.boot,
            asking=opened.sender,
            message=datagram.message,
        )
        proof = make_proof(self.insider.key, statement)
        answer = Nodes(tuple(self.story()))
        self.insider.send(Reply(message=datagram.message, storing=True, proof=proof, answer=answer), source)

    def contact(self) -> Contact:
        return Contact(self.insider.node, self.insider.address, boot=self.insider.sealer.boot, storing=True)


def near_target(source: random.Random) -> bytes:
    return TARGET[:10] + source.randbytes(10)


def test_a_liar_that_hides_a_node_behind_a_dead_address_does_not_hide_it(run: Run, make_insider: Any) -> None:
    async def body(scene: Scene) -> None:
        dead = Address.of("10.200.0.1", 7423)
        insider = make_insider(scene.network, scene.clock, number=66, host="10.9.9.9")
        nodes = [NodeAddress(node, dead.pack()) for node in scene.closest(scene.nodes[1:])]
        liar = Liar(insider, lambda: nodes)
        await insider.open(liar.on)
        scene.own.table.add_contact(liar.contact())
        found, _ = await scene.look_up()
        honest = [node for node in found if node != insider.node]
        assert honest[: K - 1] == scene.closest(scene.nodes[1:])[: K - 1]

    run(body)


def test_a_liar_that_invents_nodes_without_end_does_not_hold_a_lookup_for_ever(
    run: Run, make_insider: Any
) -> None:
    async def body(scene: Scene) -> None:
        source = random.Random(3)
        insider = make_insider(scene.network, scene.clock, number=66, host="10.9.9.9")
        dead = Address.of("10.200.0.1", 7423).pack()
        liar = Liar(insider, lambda: [NodeAddress(near_target(source), dead) for _ in range(K)])
        await insider.open(liar.on)
        scene.own.table.add_contact(liar.contact())
        before = scene.own.protocol.calls.made
        found, seconds = await scene.look_up()
        assert seconds <= LOOKUP_SECONDS
        assert scene.own.protocol.calls.made - before <= MAX_LOOKUP_CALLS
        assert len([node for node in found if node != insider.node]) >= K - 1

    run(body)


def test_nodes_of_a_family_that_we_lack_cost_no_time(run: Run) -> None:
    async def body(scene: Scene) -> None:
        for number in range(40):
            node = near_target(random.Random(number))
            address = Address.of(f"2001:db8::{number + 1:x}", 7423)
            contact = Contact(node, address, boot=bytes(8), storing=True)
            for known_by in scene.nodes:
                known_by.table.add_contact(contact)
        found, seconds = await scene.look_up()
        assert set(found) <= {node.table.node.id for node in scene.nodes}
        assert len(found) == K
        assert seconds < 0.5

    run(body)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255"])
def test_a_liar_cannot_make_us_send_to_our_own_machine_or_to_many(
    run: Run, make_insider: Any, host: str
) -> None:
    async def body(scene: Scene) -> None:
        insider = make_insider(scene.network, scene.clock, number=66, host="10.9.9.9")
        trap = Address.of(host, 53)
        liar = Liar(insider, lambda: [NodeAddress(TARGET, trap.pack())])
        await insider.open(liar.on)
        scene.own.table.add_contact(liar.contact())
        await scene.look_up()
        assert liar.asked
        assert not [to for _, to, _ in scene.network.sent if to.host == host]

    run(body)


def test_an_answer_to_another_question_counts_as_none(run: Run, make_insider: Any) -> None:
    async def body(scene: Scene) -> None:
        insider = make_insider(scene.network, scene.clock, number=66, host="10.9.9.9")

        def on(datagram: Datagram, opened: Opened, source: Address) -> None:
            statement = answering_statement(
                answering=insider.node,
                boot=insider.sealer.boot,
                asking=opened.sender,
                message=datagram.message,
            )
            proof = make_proof(insider.key, statement)
            insider.send(Reply(message=datagram.message, storing=True, proof=proof, answer=Pong()), source)
            assert not isinstance(datagram, Challenge)

        await insider.open(on)
        contact = Contact(insider.node, insider.address, boot=insider.sealer.boot, storing=True)
        scene.own.table.add_contact(contact)
        found, _ = await scene.look_up()
        assert insider.node not in found
        assert found == scene.closest(scene.nodes[1:])

    run(body)
