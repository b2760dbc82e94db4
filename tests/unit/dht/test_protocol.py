"""Both sides of an exchange, over datagrams in memory: ``Calls`` asks, ``Protocol`` answers."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from swarm.dht.addresses import Address
from swarm.dht.calls import ItselfError, Target
from swarm.dht.limits import MAX_DATAGRAM_BYTES, MAX_LATE, MIN_TIMEOUT_SECONDS
from swarm.dht.messages import (
    Challenge,
    Datagram,
    FindNodes,
    Nodes,
    Ping,
    Pong,
    Reply,
    Request,
    Store,
    encode_body,
)
from swarm.dht.proof import answering_statement, asking_statement, make_proof
from swarm.dht.seal import Envelope, Opened, Sealer, Suite
from swarm.errors import LocalError, RemoteTimeoutError
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

Run = Callable[[Callable[["Scene"], Coroutine[Any, Any, None]]], None]


class Scene:
    """Two nodes, a network, and an insider at 10.9.9.9."""

    def __init__(self, clock: ManualClock, make_bare: Any, make_insider: Any) -> None:
        self.clock = clock
        self.network = MemoryDatagrams()
        self.one = make_bare(self.network, clock, 1, storing=True)
        self.two = make_bare(self.network, clock, 2, storing=True)
        self.insider = make_insider(self.network, clock, number=66, host="10.9.9.9")
        self.errors: list[dict[str, Any]] = []

    def to_two(self, *, known: bool = True) -> Target:
        return Target(node=self.two.table.node.id if known else None, address=self.two.address)

    def to_insider(self, node: bytes | None = None) -> Target:
        return Target(node=node, address=self.insider.address)


@pytest.fixture
def run(make_bare: Any, make_insider: Any) -> Run:
    def runner(body: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
        async def main(clock: ManualClock) -> None:
            scene = Scene(clock, make_bare, make_insider)
            asyncio.get_running_loop().set_exception_handler(lambda _, context: scene.errors.append(context))
            await scene.one.open()
            await scene.two.open()
            await body(scene)
            await asyncio.sleep(10)
            assert scene.errors == []
            assert len(scene.one.protocol.calls) == len(scene.two.protocol.calls) == 0
            assert all(len(data) <= MAX_DATAGRAM_BYTES for _, _, data in scene.network.sent)

        run_on_manual_clock(main)

    return runner


def ask(message: bytes = bytes(16), **changes: Any) -> Request:
    fields: dict[str, Any] = {
        "message": message,
        "storing": True,
        "prove": True,
        "cookie": b"",
        "proof": None,
        "question": Ping(),
    }
    return Request(**fields | changes)


# ---- the ordinary exchange ----------------------------------------------------------------------


def test_strangers_prove_themselves_to_each_other_and_then_need_one_round_trip(run: Run) -> None:
    async def body(scene: Scene) -> None:
        answered = await scene.one.protocol.calls.call(scene.to_two(), Ping())
        assert answered.answer == Pong()
        assert answered.contact.id == scene.two.table.node.id
        assert [contact.id for contact in scene.one.table.contacts()] == [scene.two.table.node.id]
        assert [contact.id for contact in scene.two.table.contacts()] == [scene.one.table.node.id]
        assert len(scene.network.sent) == 4
        await scene.one.protocol.calls.call(scene.to_two(), Ping())
        await scene.two.protocol.calls.call(
            Target(node=scene.one.table.node.id, address=scene.one.address), Ping()
        )
        assert len(scene.network.sent) == 8

    run(body)


def test_a_seed_of_unknown_id_is_known_once_it_answers(run: Run) -> None:
    async def body(scene: Scene) -> None:
        answered = await scene.one.protocol.calls.call(scene.to_two(known=False), Ping())
        assert answered.contact.id == scene.two.table.node.id

    run(body)


def test_asking_our_own_address_says_so(run: Run) -> None:
    async def body(scene: Scene) -> None:
        with pytest.raises(ItselfError, match="itself"):
            await scene.one.protocol.calls.call(Target(node=None, address=scene.one.address), Ping())

    run(body)


def test_a_client_is_answered_but_enters_no_table(run: Run, make_bare: Any) -> None:
    async def body(scene: Scene) -> None:
        client = await make_bare(scene.network, scene.clock, 3, storing=False).open()
        await client.protocol.calls.call(scene.to_two(), Ping())
        assert [contact.id for contact in client.table.contacts()] == [scene.two.table.node.id]
        assert scene.two.table.contacts() == []
        answered = await scene.one.protocol.calls.call(Target(node=None, address=client.address), Ping())
        assert not answered.contact.storing
        assert scene.one.table.contacts() == []

    run(body)


def test_a_restarted_node_is_asked_for_its_proof_again(run: Run, make_bare: Any) -> None:
    async def body(scene: Scene) -> None:
        await scene.one.protocol.calls.call(scene.to_two(), Ping())
        boot = scene.one.table.contacts()[0].boot
        scene.network.release((scene.two.address,))
        await make_bare(scene.network, scene.clock, 2, storing=True).open()
        await scene.one.protocol.calls.call(scene.to_two(), Ping())
        assert scene.one.table.contacts()[0].boot != boot

    run(body)


# ---- time ---------------------------------------------------------------------------------------


def test_silence_ends_a_call_within_its_two_waits(run: Run) -> None:
    async def body(scene: Scene) -> None:
        scene.network.unplugged.add(scene.two.address.host)
        doubts: list[float] = []
        started = scene.clock.elapsed()
        with pytest.raises(RemoteTimeoutError, match="does not answer"):
            await scene.one.protocol.calls.call(
                scene.to_two(), Ping(), on_doubt=lambda: doubts.append(scene.clock.elapsed() - started)
            )
        assert scene.clock.elapsed() - started == pytest.approx(1.0)
        assert doubts == [pytest.approx(0.5)]
        assert len(scene.network.sent) == 2

    run(body)


def test_the_wait_adapts_to_the_measured_round_trip(run: Run) -> None:
    async def body(scene: Scene) -> None:
        for _ in range(10):
            await scene.one.protocol.calls.call(scene.to_two(), Ping())
        scene.network.unplugged.add(scene.two.address.host)
        doubts: list[float] = []
        started = scene.clock.elapsed()
        with pytest.raises(RemoteTimeoutError):
            await scene.one.protocol.calls.call(
                scene.to_two(), Ping(), on_doubt=lambda: doubts.append(scene.clock.elapsed() - started)
            )
        assert scene.clock.elapsed() - started == pytest.approx(2 * MIN_TIMEOUT_SECONDS)
        assert len(doubts) == 1
        assert doubts[0] < 0.1

    run(body)


def test_an_answer_after_the_first_timeout_counts(run: Run) -> None:
    async def body(scene: Scene) -> None:
        scene.network.delay = 0.4
        answered = await scene.one.protocol.calls.call(scene.to_two(), Ping())
        assert answered.answer == Pong()

    run(body)


def test_answers_slower_than_the_first_wait_are_waited_for_from_then_on(run: Run) -> None:
    async def body(scene: Scene) -> None:
        calls = scene.one.protocol.calls
        await calls.call(scene.to_two(), Ping())
        scene.network.delay = 0.35
        for _ in range(3):
            await asyncio.sleep(5)
            with contextlib.suppress(RemoteTimeoutError):
                await calls.call(scene.to_two(), Ping())
        repeated = calls.repeated
        assert repeated > 0
        for _ in range(5):
            await calls.call(scene.to_two(), Ping())
        assert calls.repeated == repeated

    run(body)


def test_an_answer_after_the_end_of_its_call_shows_that_the_node_lives(run: Run) -> None:
    async def body(scene: Scene) -> None:
        protocol, table = scene.one.protocol, scene.one.table
        for _ in range(10):
            await protocol.calls.call(scene.to_two(), Ping())
        node, address = scene.two.table.node.id, scene.two.address
        scene.network.delay = 0.45
        with pytest.raises(RemoteTimeoutError):
            await protocol.calls.call(scene.to_two(), Ping())
        assert [contact.silences for contact in table.contacts()] == [1]
        await asyncio.sleep(1)
        assert [contact.silences for contact in table.contacts()] == [0]
        assert not protocol.contacts.is_silent(node, address)
        assert protocol.counts["refused_content"] == 0

    run(body)


def test_what_was_sent_for_ended_calls_is_remembered_within_bounds(run: Run) -> None:
    async def body(scene: Scene) -> None:
        scene.network.unplugged.add(scene.two.address.host)
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_LATE):
                group.create_task(_left_unanswered(scene))
        assert len(scene.one.protocol.calls._late) == MAX_LATE

    run(body)


async def _left_unanswered(scene: Scene) -> None:
    with pytest.raises(RemoteTimeoutError):
        await scene.one.protocol.calls.call(scene.to_two(), Ping())


def test_duplicated_datagrams_are_answered_once(run: Run) -> None:
    async def body(scene: Scene) -> None:
        scene.network.duplication = 1.0
        await scene.one.protocol.calls.call(scene.to_two(), Ping())
        await asyncio.sleep(1)
        assert len(scene.network.sent) == 4
        assert scene.two.protocol.counts["refused_seen"] == 2

    run(body)


def test_closing_ends_the_calls_under_way(run: Run) -> None:
    async def body(scene: Scene) -> None:
        scene.network.unplugged.add(scene.two.address.host)
        started = scene.clock.elapsed()
        asyncio.get_running_loop().call_later(0.1, scene.one.protocol.close)
        with pytest.raises(RemoteTimeoutError):
            await scene.one.protocol.calls.call(scene.to_two(), Ping())
        assert scene.clock.elapsed() - started == pytest.approx(0.1)

    run(body)


# ---- keys of different ages and builds ----------------------------------------------------------


def test_a_node_that_missed_a_rotation_is_still_reached_and_reaches(run: Run) -> None:
    async def body(scene: Scene) -> None:
        scene.one.protocol.sealer.set_epoch(2, bytes(32))
        await scene.one.protocol.calls.call(scene.to_two(), Ping())
        await scene.two.protocol.calls.call(
            Target(node=scene.one.table.node.id, address=scene.one.address), Ping()
        )
        assert scene.two.protocol.counts["refused_epoch"] >= 1

    run(body)


def test_a_node_whose_build_lacks_the_better_cipher_is_reached(run: Run) -> None:
    async def body(scene: Scene) -> None:
        poor = Sealer(scene.two.table.node.id, clock=scene.clock, suites=(Suite.CHACHA20_POLY1305,))
        poor.set_epoch(1, bytes(range(32)))
        scene.two.protocol.sealer = scene.two.protocol.calls._sealer = poor
        await scene.one.protocol.calls.call(scene.to_two(), Ping())
        refused = scene.two.protocol.counts["refused_suite"]
        assert refused == 1
        await scene.one.protocol.calls.call(scene.to_two(), Ping())
        assert scene.two.protocol.counts["refused_suite"] == refused

    run(body)


# ---- claims that do not hold --------------------------------------------------------------------


def test_a_request_without_proof_gets_a_challenge_no_larger_than_itself(run: Run) -> None:
    async def body(scene: Scene) -> None:
        await scene.insider.open()
        sent = scene.insider.send(ask(question=FindNodes(bytes(20), True, True)), scene.two.address)
        await asyncio.sleep(1)
        [answer] = scene.insider.heard
        assert isinstance(answer, Challenge)
        assert len(scene.insider.raw[0]) <= len(sent)
        assert scene.two.table.contacts() == []

    run(body)


def test_a_request_smaller_than_a_challenge_gets_nothing(run: Run) -> None:
    async def body(scene: Scene) -> None:
        await scene.insider.open()
        bare = scene.insider.sealer
        short = msgspec.msgpack.encode(ask())
        assert len(short) < len(encode_body(ask()))
        scene.network.transmit(bare.seal(short, bare.best(None)), scene.insider.address, scene.two.address)
        await asyncio.sleep(1)
        assert scene.insider.heard == []
        assert scene.two.protocol.counts["refused_content"] == 1

    run(body)


def challenged(scene: Scene, *, node: bytes, key: Any, to: bytes | None = None) -> Callable[..., None]:
    """Answers a challenge as ``node`` with a proof made by ``key``, as for the node ``to``."""

    def on(datagram: Datagram, opened: Opened, source: Address) -> None:
        if isinstance(datagram, Challenge):
            statement = asking_statement(
                asking=node,
                boot=scene.insider.sealer.boot,
                answering=to or opened.sender,
                cookie=datagram.cookie,
            )
            proof = make_proof(key, statement)
            scene.insider.send(ask(cookie=datagram.cookie, proof=proof, message=b"\1" * 16), source)

    return on


def test_an_insider_with_a_key_of_its_own_can_prove_it(run: Run) -> None:
    """So that the refusals below are refusals of the lie, and not of the insider's clumsiness."""

    async def body(scene: Scene) -> None:
        await scene.insider.open(challenged(scene, node=scene.insider.node, key=scene.insider.key))
        scene.insider.send(ask(), scene.two.address)
        await asyncio.sleep(1)
        assert isinstance(scene.insider.heard[-1], Reply)
        assert [contact.id for contact in scene.two.table.contacts()] == [scene.insider.node]

    run(body)


def test_nobody_enters_the_table_under_anothers_id(run: Run) -> None:
    async def body(scene: Scene) -> None:
        victim = scene.one.table.node.id
        scene.insider.sealer._node = victim
        await scene.insider.open(challenged(scene, node=victim, key=scene.insider.key))
        scene.insider.send(ask(), scene.two.address)
        await asyncio.sleep(1)
        assert all(isinstance(datagram, Challenge) for datagram in scene.insider.heard)
        assert scene.two.table.contacts() == []
        assert scene.two.protocol.counts["refused_content"] == 1

    run(body)


def test_a_proof_made_for_another_node_does_not_count(run: Run) -> None:
    async def body(scene: Scene) -> None:
        insider = scene.insider
        await insider.open(challenged(scene, node=insider.node, key=insider.key, to=bytes(20)))
        insider.send(ask(), scene.two.address)
        await asyncio.sleep(1)
        assert scene.two.table.contacts() == []

    run(body)


def test_a_cookie_does_not_serve_from_another_address(run: Run) -> None:
    async def body(scene: Scene) -> None:
        elsewhere = Address.of("10.9.9.8", 666)

        def on(datagram: Datagram, opened: Opened, source: Address) -> None:
            if isinstance(datagram, Challenge):
                statement = asking_statement(
                    asking=scene.insider.node,
                    boot=scene.insider.sealer.boot,
                    answering=opened.sender,
                    cookie=datagram.cookie,
                )
                proof = make_proof(scene.insider.key, statement)
                again = ask(cookie=datagram.cookie, proof=proof)
                scene.insider.send(again, source, source=elsewhere)

        await scene.insider.open(on)
        scene.insider.send(ask(), scene.two.address)
        await asyncio.sleep(1)
        assert scene.two.table.contacts() == []
        answers = [data for source, to, data in scene.network.sent if to == elsewhere]
        assert [len(data) <= 300 for data in answers] == [True]

    run(body)


def test_one_that_answers_under_anothers_id_is_not_believed(run: Run) -> None:
    async def body(scene: Scene) -> None:
        victim = scene.two.table.node.id
        scene.insider.sealer._node = victim

        def on(datagram: Datagram, opened: Opened, source: Address) -> None:
            statement = answering_statement(
                answering=victim,
                boot=scene.insider.sealer.boot,
                asking=opened.sender,
                message=datagram.message,
            )
            proof = make_proof(scene.insider.key, statement)
            scene.insider.send(
                Reply(message=datagram.message, storing=True, proof=proof, answer=Pong()), source
            )
            scene.insider.send(
                Reply(message=datagram.message, storing=True, proof=None, answer=Pong()), source
            )
            scene.insider.send(
                Challenge(message=datagram.message, storing=True, cookie=bytes(16), proof=proof), source
            )

        await scene.insider.open(on)
        for node in (victim, None):
            with pytest.raises(RemoteTimeoutError):
                await scene.one.protocol.calls.call(scene.to_insider(node), Ping())
        assert scene.one.table.contacts() == []

    run(body)


def test_a_proof_given_to_one_node_is_worth_nothing_to_another(run: Run) -> None:
    """The insider puts node one's question to node two, and passes two's proof off as an answer to one."""

    async def body(scene: Scene) -> None:
        def on(datagram: Datagram, opened: Opened, source: Address) -> None:
            if isinstance(datagram, Request):
                scene.insider.send(ask(datagram.message), scene.two.address)
            elif isinstance(datagram, Challenge):
                own = scene.insider.sealer._node, scene.insider.sealer.boot
                scene.insider.sealer._node, scene.insider.sealer.boot = opened.sender, opened.boot
                scene.insider.sealer._own.clear()
                scene.insider.send(datagram, scene.one.address)
                scene.insider.sealer._node, scene.insider.sealer.boot = own
                scene.insider.sealer._own.clear()

        await scene.insider.open(on)
        with pytest.raises(RemoteTimeoutError):
            await scene.one.protocol.calls.call(scene.to_insider(scene.two.table.node.id), Ping())
        assert scene.one.table.contacts() == []
        assert scene.one.protocol.counts["refused_content"] == 2

    run(body)


def test_an_endless_challenger_gets_one_proof_and_no_loop(run: Run) -> None:
    async def body(scene: Scene) -> None:
        def on(datagram: Datagram, opened: Opened, source: Address) -> None:
            statement = answering_statement(
                answering=scene.insider.node,
                boot=scene.insider.sealer.boot,
                asking=opened.sender,
                message=datagram.message,
            )
            proof = make_proof(scene.insider.key, statement)
            scene.insider.send(
                Challenge(message=datagram.message, storing=True, cookie=bytes(16), proof=proof), source
            )

        await scene.insider.open(on)
        with pytest.raises(RemoteTimeoutError):
            await scene.one.protocol.calls.call(scene.to_insider(), Ping())
        assert len(scene.insider.heard) <= 4

    run(body)


def test_a_recorded_datagram_gets_no_answer_from_anywhere_and_at_no_time(run: Run) -> None:
    async def body(scene: Scene) -> None:
        await scene.insider.open()
        await scene.one.protocol.calls.call(scene.to_two(), Ping())
        recorded = [data for source, _, data in scene.network.sent if source == scene.one.address]
        quiet = len(scene.network.sent)
        for wait in (0.0, 61.0, 3600.0):
            await asyncio.sleep(wait)
            for data in recorded:
                scene.network.transmit(data, scene.one.address, scene.two.address)
                scene.network.transmit(data, scene.insider.address, scene.two.address)
        await asyncio.sleep(1)
        assert len(scene.network.sent) == quiet + 6 * len(recorded)
        assert scene.insider.raw == []

    run(body)


def test_a_bad_record_among_good_ones_spoils_nothing(run: Run, make_record: Callable[..., bytes]) -> None:
    async def body(scene: Scene) -> None:
        wall = scene.clock.wall()
        good = make_record(5, wall=wall)
        forged = make_record(6, wall=wall)[:64] + good[64:]
        question = Store(bytes(20), (forged, good, b"noise"))
        answered = await scene.one.protocol.calls.call(scene.to_two(), question)
        assert answered.answer.held == (0, int(wall * 1000), 0)
        assert len(scene.two.storage) == 1

    run(body)


def test_before_an_epoch_key_a_call_is_a_mistake_of_ours(run: Run) -> None:
    async def body(scene: Scene) -> None:
        scene.one.protocol.sealer._epochs.clear()
        with pytest.raises(LocalError, match="epoch key"):
            await scene.one.protocol.calls.call(scene.to_two(), Ping())

    run(body)


def test_contacts_are_named_as_closest_first_and_without_the_asker(run: Run, make_bare: Any) -> None:
    async def body(scene: Scene) -> None:
        others = [await make_bare(scene.network, scene.clock, n, storing=True).open() for n in range(10, 16)]
        for other in others:
            await other.protocol.calls.call(scene.to_two(), Ping())
        target = others[0].table.node.id
        answered = await others[1].protocol.calls.call(scene.to_two(), FindNodes(target, True, True))
        assert isinstance(answered.answer, Nodes)
        found = [entry.node for entry in answered.answer.nodes]
        assert found[0] == target
        assert set(found) == {other.table.node.id for other in others} - {others[1].table.node.id}
        sealed = answered.contact.envelope
        assert isinstance(sealed, Envelope)

    run(body)
