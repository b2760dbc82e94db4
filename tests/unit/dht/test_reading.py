import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from swarm.dht.addresses import Address
from swarm.dht.calls import Target
from swarm.dht.limits import LOOKUP_SECONDS, MAX_GIVEN, MAX_PAGES
from swarm.dht.messages import Datagram, FindRecords, Ping, Pong, Records, Reply, Request
from swarm.dht.proof import answering_statement, make_proof, node_id
from swarm.dht.reading import Reading
from swarm.dht.seal import Opened
from swarm.dht.table import Contact
from swarm.identity.keys import PrivateKey
from swarm.ids import SwarmId
from swarm.testing.clock import ManualClock
from swarm.testing.datagrams import MemoryDatagrams
from swarm.testing.loop import run_on_manual_clock

KEY = b"\x07" * 20


class Scene:
    """A reader, and holders that it has met."""

    def __init__(self, clock: ManualClock, make_bare: Any, swarm: SwarmId, holders: int) -> None:
        self.clock = clock
        self.network = MemoryDatagrams()
        self.reader = make_bare(self.network, clock, 1, storing=True)
        self.holders = [make_bare(self.network, clock, 2 + n, storing=True) for n in range(holders)]
        self.contacts: list[Contact] = []
        self.swarm = swarm

    async def open(self) -> None:
        await self.reader.open()
        for holder in self.holders:
            await holder.open()
            met = await self.reader.protocol.calls.call(Target(node=None, address=holder.address), Ping())
            self.contacts.append(met.contact)

    def offer(self, holder: int, record: bytes) -> None:
        assert self.holders[holder].storage.offer(KEY, record, now=self.clock.wall())

    async def read(self, **options: bytes) -> list[bytes]:
        reading = Reading(self.reader.protocol.calls, KEY, swarm=self.swarm, clock=self.clock)
        await reading.read_from(self.contacts, **options)
        return [held.data for held in reading.records]


Run = Callable[..., None]


@pytest.fixture
def run(make_bare: Any, swarm: SwarmId) -> Run:
    def runner(body: Callable[[Scene], Coroutine[Any, Any, None]], *, holders: int = 3) -> None:
        async def main(clock: ManualClock) -> None:
            scene = Scene(clock, make_bare, swarm, holders)
            await scene.open()
            await body(scene)
            assert len(scene.reader.protocol.calls) == 0

        run_on_manual_clock(main)

    return runner


def test_holders_are_merged_by_publisher_the_newest_winning(
    run: Run, make_record: Callable[..., bytes]
) -> None:
    async def body(scene: Scene) -> None:
        wall = scene.clock.wall()
        old, new = make_record(50, wall=wall - 20), make_record(50, wall=wall - 10)
        other = make_record(51, wall=wall - 15)
        scene.offer(0, new)
        scene.offer(1, old)
        scene.offer(1, other)
        scene.offer(2, old)
        assert await scene.read() == [new, other]

    run(body)


def test_hundreds_of_publishers_on_many_holders_are_all_found_once(
    run: Run, make_record: Callable[..., bytes]
) -> None:
    async def body(scene: Scene) -> None:
        wall = scene.clock.wall()
        records = [make_record(50 + n, wall=wall - n / 10) for n in range(300)]
        for number, record in enumerate(records):
            scene.offer(number % 6, record)
            if number < 60:
                scene.offer((number + 1) % 6, record)
        started = scene.clock.elapsed()
        assert await scene.read() == records
        assert scene.clock.elapsed() - started < 3.0

    run(body, holders=6)


def test_a_second_holder_of_the_same_costs_one_empty_page(
    run: Run, make_record: Callable[..., bytes]
) -> None:
    async def body(scene: Scene) -> None:
        wall = scene.clock.wall()
        for number in range(40):
            record = make_record(50 + number, wall=wall - number)
            for holder in range(10):
                scene.offer(holder, record)
        before = scene.reader.protocol.calls.made
        assert len(await scene.read()) == 40
        assert scene.reader.protocol.calls.made - before < 40

    run(body, holders=10)


def test_one_publisher_can_be_read_alone(
    run: Run, make_record: Callable[..., bytes], make_key: Callable[[int], PrivateKey]
) -> None:
    async def body(scene: Scene) -> None:
        wall = scene.clock.wall()
        wanted = make_record(60, wall=wall)
        for number in range(50, 70):
            scene.offer(0, make_record(number, wall=wall))
        assert await scene.read(publisher=node_id(make_key(60).public)) == [wanted]

    run(body)


def test_a_silent_holder_hides_nothing_that_others_hold(run: Run, make_record: Callable[..., bytes]) -> None:
    async def body(scene: Scene) -> None:
        record = make_record(50, wall=scene.clock.wall())
        scene.offer(2, record)
        scene.network.unplugged.add(scene.holders[0].address.host)
        assert await scene.read() == [record]

    run(body)


Story = Callable[[FindRecords], Records | Pong]


def test_what_a_hostile_holder_makes_up_is_not_read(
    run: Run, make_record: Callable[..., bytes], make_insider: Any
) -> None:
    async def body(scene: Scene) -> None:
        wall = scene.clock.wall()
        good = make_record(50, wall=wall)
        scene.offer(0, good)
        bad = (
            make_record(51, wall=wall)[:64] + good[64:],
            make_record(52, wall=wall, expires=wall + 9999),
            make_record(53, wall=wall, sequence=int((wall + 3600) * 1000)),
            make_record(54, wall=wall, expires=wall - 1),
            b"noise",
            b"",
        )
        liar = Holder(scene, make_insider, lambda _: Records(bad, b""))
        await liar.join()
        assert await scene.read() == [good]
        assert liar.asked == 1

    run(body)


def test_a_holder_with_pages_without_end_is_left_in_the_end(run: Run, make_insider: Any) -> None:
    async def body(scene: Scene) -> None:
        turns = iter(range(1, 10**6))
        liar = Holder(scene, make_insider, lambda _: Records((), next(turns).to_bytes(28, "big")))
        await liar.join()
        started = scene.clock.elapsed()
        assert await scene.read() == []
        assert liar.asked == MAX_PAGES
        assert scene.clock.elapsed() - started <= LOOKUP_SECONDS

    run(body)


def test_a_cursor_that_does_not_advance_ends_the_reading(run: Run, make_insider: Any) -> None:
    async def body(scene: Scene) -> None:
        liar = Holder(scene, make_insider, lambda _: Records((), b"\x01" * 28))
        await liar.join()
        assert await scene.read() == []
        assert liar.asked == 2

    run(body)


def test_an_answer_to_another_question_ends_the_reading(run: Run, make_insider: Any) -> None:
    async def body(scene: Scene) -> None:
        liar = Holder(scene, make_insider, lambda _: Pong())
        await liar.join()
        assert await scene.read() == []
        assert liar.asked == 1

    run(body)


def test_one_that_makes_up_records_neither_floods_a_reader_nor_comes_before_others(
    run: Run, make_record: Callable[..., bytes], make_insider: Any, swarm: SwarmId
) -> None:
    async def body(scene: Scene) -> None:
        wall = scene.clock.wall()
        honest = [make_record(50 + number, wall=wall - 100) for number in range(5)]
        for record in honest:
            scene.offer(0, record)
        made_up = [make_record(1000 + number, wall=wall) for number in range(MAX_GIVEN + 50)]
        at = iter(range(0, 10**6, 8))

        def story(_: FindRecords) -> Records:
            start = next(at)
            return Records(tuple(made_up[start : start + 8]), start.to_bytes(28, "big"))

        liar = Holder(scene, make_insider, story)
        await liar.join()
        reading = Reading(scene.reader.protocol.calls, KEY, swarm=swarm, clock=scene.clock)
        await reading.read_from(scene.contacts)
        found = [held.data for held in reading.in_turns()]
        assert len(found) <= 5 + MAX_GIVEN
        assert set(honest) <= set(found[:10])

    run(body)


class Holder:
    """A member that answers each question for records with what ``story`` makes up."""

    def __init__(self, scene: Scene, make_insider: Any, story: Story) -> None:
        self.scene = scene
        self.insider = make_insider(scene.network, scene.clock, number=66, host="10.9.9.9")
        self.story = story
        self.asked = 0

    async def join(self) -> None:
        await self.insider.open(self.on)
        met = await self.scene.reader.protocol.calls.call(
            Target(node=None, address=self.insider.address), Ping()
        )
        self.scene.contacts.append(met.contact)

    def on(self, datagram: Datagram, opened: Opened, source: Address) -> None:
        assert isinstance(datagram, Request)
        answer: Records | Pong = Pong()
        if isinstance(datagram.question, FindRecords):
            self.asked += 1
            answer = self.story(datagram.question)
        statement = answering_statement(
            answering=self.insider.node,
            boot=self.insider.sealer.boot,
            asking=opened.sender,
            message=datagram.message,
        )
        proof = make_proof(self.insider.key, statement)
        self.insider.send(Reply(message=datagram.message, storing=True, proof=proof, answer=answer), source)


def test_cancelling_leaves_nothing_behind(run: Run, make_record: Callable[..., bytes]) -> None:
    async def body(scene: Scene) -> None:
        for number in range(60):
            scene.offer(0, make_record(50 + number, wall=scene.clock.wall()))
        for delay in (0.0, 0.01, 0.05, 0.1):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(delay):
                    await scene.read()
            assert len(scene.reader.protocol.calls) == 0

    run(body)


def test_records_that_expire_while_reading_are_not_returned(
    run: Run, make_record: Callable[..., bytes], swarm: SwarmId
) -> None:
    async def body(scene: Scene) -> None:
        wall = scene.clock.wall()
        scene.offer(0, make_record(50, wall=wall, expires=wall + 5))
        reading = Reading(scene.reader.protocol.calls, KEY, swarm=swarm, clock=scene.clock)
        await reading.read_from(scene.contacts)
        assert len(reading.records) == 1
        scene.clock.advance(5)
        assert reading.records == []

    run(body)
