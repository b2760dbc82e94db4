"""Block exchanges joined by links in this process, which deliver in a later turn of the loop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from swarm.data.blobs import get_blob, put_blob
from swarm.data.blocks import Blocks, MemoryBlockStore
from swarm.errors import FailureError, LinkLostError, RemoteProtocolError, RemoteRefusalError
from swarm.ids import Digest, PeerId, digest
from swarm.services.blocks import BlockExchange
from swarm.services.blocks_giving import MAX_REQUESTS_WAITING, SERVED_AT_ONCE
from swarm.testing.clock import ManualClock
from swarm.testing.loop import run_on_manual_clock
from swarm.wire.limits import MIB
from swarm.wire.messages.base import Message
from swarm.wire.messages.blocks import BlockMissing, BlockReply, BlockRequest
from swarm.wire.messages.jobs import JobAnnounce


def on_manual_clock(test: Callable[[ManualClock], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """The coroutine function as a test, run without waiting; its time is the clock's."""

    def run() -> None:
        run_on_manual_clock(test)

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


class FakeSending:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self.over = asyncio.Event()

    async def wait(self) -> None:
        await self.over.wait()
        if self.error is not None:
            raise self.error

    def settle(self, error: Exception | None = None) -> None:
        self.error = error
        self.over.set()


class FakeLink:
    """One end; ``other`` is the far one. ``held`` keeps posted messages back until ``release``."""

    def __init__(self, peer: str) -> None:
        self.peer = PeerId(peer * 32)
        self.other: FakeLink
        self.exchange: BlockExchange | None = None
        """Whom this end delivers to."""
        self.closed = ""
        self.held: list[tuple[Message, bytes, FakeSending]] | None = None
        self.seen: list[Message] = []
        """What was delivered to this end."""
        self.unwanted: list[str] = []
        self.charged: list[str] = []

    def charge(self, what: str) -> None:
        self.charged.append(what)

    def post(self, message: Message, payload: bytes = b"") -> FakeSending:
        if self.closed:
            raise LinkLostError(self.closed)
        sending = FakeSending()
        if self.held is not None:
            self.held.append((message, payload, sending))
        else:
            asyncio.get_running_loop().call_soon(self.other.receive, message, bytes(payload), sending)
        return sending

    def release(self) -> None:
        held, self.held = self.held or [], None
        for message, payload, sending in held:
            self.other.receive(message, payload, sending)

    def receive(self, message: Message, payload: bytes, sending: FakeSending) -> None:
        if self.closed or self.exchange is None:
            sending.settle(LinkLostError("closed"))
            return
        self.seen.append(message)
        link: Any = self
        refusal = self.exchange.on_offer(link, message, len(payload)) if payload else ""
        if refusal:
            self.unwanted.append(refusal)
            sending.settle(RemoteRefusalError("unwanted", refusal))
            return
        sending.settle()
        try:
            assert self.exchange.on_message(link, message, memoryview(payload))
        except RemoteProtocolError as error:
            self.close(str(error))

    def close(self, reason: str) -> None:
        for end in (self, self.other):
            if not end.closed:
                end.closed = reason
                for _, _, sending in end.held or ():
                    sending.settle(LinkLostError(reason))
                link: Any = end
                if end.exchange is not None:
                    end.exchange.on_down(link)

    async def aclose(self, reason: str, code: int = 0) -> None:
        del code
        self.close(reason)


class Room:
    """Exchanges that share a task group."""

    def __init__(self, tasks: asyncio.TaskGroup, clock: ManualClock) -> None:
        self.tasks = tasks
        self.clock = clock
        self.liars: list[tuple[PeerId, Digest]] = []

    def exchange(self, store: Blocks | None = None) -> BlockExchange:
        store = store if store is not None else MemoryBlockStore(1 << 30)
        made = BlockExchange(store, clock=self.clock, tasks=self.tasks)
        made.on_liar = lambda peer, name: self.liars.append((peer, name))
        return made


def join(one: BlockExchange | None, other: BlockExchange | None, *, names: str = "ab") -> FakeLink:
    """A link between two exchanges; the end at ``one``, whose peer is the second name."""
    here, there = FakeLink(names[1]), FakeLink(names[0])
    here.other, there.other = there, here
    here.exchange, there.exchange = one, other
    return here


def only(*links: FakeLink) -> Callable[[], Sequence[Any]]:
    return lambda: [link for link in links if not link.closed]


@asynccontextmanager
async def room(clock: ManualClock) -> AsyncIterator[Room]:
    class Over(Exception):  # noqa: N818 - not an error
        pass

    async def end() -> None:
        raise Over

    try:
        async with asyncio.TaskGroup() as tasks:
            yield Room(tasks, clock)
            tasks.create_task(end())
    except* Over:
        pass


@on_manual_clock
async def test_blocks_come_from_whoever_has_them(clock: ManualClock):
    async with room(clock) as here:
        one, two, three = (here.exchange() for _ in range(3))
        first, second = two.store.put(b"first"), three.store.put(b"second")
        links = join(one, two, names="ab"), join(one, three, names="ac")
        await one.fetch([first, second, first], sources=only(*links))
        assert (one.store.get(first), one.store.get(second)) == (b"first", b"second")


@on_manual_clock
async def test_what_is_here_is_not_asked_for(clock: ManualClock):
    async with room(clock) as here:
        one = here.exchange()
        name = one.store.put(b"here")
        await one.fetch([name], sources=lambda: pytest.fail("nothing is to be looked for"))
        await one.fetch([], sources=lambda: pytest.fail("nothing is to be looked for"))


@on_manual_clock
async def test_a_blob_is_fetched_in_its_blocks(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        data = bytes(range(251)) * 20_000
        blobs = [put_blob(two.store, data), put_blob(two.store, b"small")]
        await one.fetch_blobs(blobs, sources=only(join(one, two)))
        assert [get_blob(one.store, blob, limit=len(data)) for blob in blobs] == [data, b"small"]


@on_manual_clock
async def test_a_missing_block_is_fetched_from_another(clock: ManualClock):
    async with room(clock) as here:
        one, two, three = (here.exchange() for _ in range(3))
        name = three.store.put(b"rare")
        without, having = join(one, two, names="ab"), join(one, three, names="ac")
        await one.fetch([name], sources=only(without, having))
        assert [type(message) for message in without.seen] == [BlockMissing]
        assert [type(message) for message in having.seen] == [BlockReply]
        assert one.store.has(name)


@on_manual_clock
async def test_a_link_that_ends_in_the_middle_is_replaced_by_another(clock: ManualClock):
    async with room(clock) as here:
        one, two, three = (here.exchange() for _ in range(3))
        name = two.store.put(b"twice")
        dying = join(one, two, names="ab")
        dying.other.held = []
        links = [dying]
        fetching = here.tasks.create_task(
            one.fetch([name], sources=lambda: [link for link in links if not link.closed])
        )
        await asyncio.sleep(0.1)
        three.store.put(b"twice")
        links.append(join(one, three, names="ac"))
        dying.close("cut")
        await fetching
        assert one.store.has(name)


@on_manual_clock
async def test_wrong_bytes_close_the_link_and_the_block_comes_from_another(clock: ManualClock):
    class Liar(MemoryBlockStore):
        def get(self, name: Digest) -> bytes | None:
            return b"lies" if self.has(name) else None

    async with room(clock) as here:
        one, liar, honest = here.exchange(), here.exchange(Liar(1 << 20)), here.exchange()
        name = digest(b"truth")
        liar.store.put(b"truth")
        bad, good = join(one, liar, names="ab"), join(one, honest, names="ac")
        links = [bad]
        fetching = here.tasks.create_task(
            one.fetch([name], sources=lambda: [link for link in links if not link.closed])
        )
        await asyncio.sleep(0.1)
        assert bad.closed == f"your block {name[:8]} has another hash"
        assert here.liars == [("b" * 32, name)]
        assert not one.store.has(name)
        honest.store.put(b"truth")
        links.append(good)
        await fetching
        assert (one.store.get(name), good.closed) == (b"truth", "")


@on_manual_clock
async def test_a_fetch_fails_when_every_source_lacks_the_block_for_all_of_its_patience(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        link = join(one, two)
        with pytest.raises(FailureError) as caught:
            await one.fetch([digest(b"none")], sources=only(link), patience=20.0)
        name = digest(b"none")[:8]
        assert str(caught.value) == (
            f"block {name} cannot be fetched: bbbbbbbb lacks it (waited 20 s for a source)"
        )
        assert 20.0 <= clock.elapsed() <= 21.0
        assert one.statistics().wanted == 0


@on_manual_clock
async def test_a_fetch_waits_for_a_source_to_appear_and_for_it_to_get_the_block(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        links: list[FakeLink] = []
        fetching = here.tasks.create_task(
            one.fetch(
                [digest(b"late")], sources=lambda: [link for link in links if not link.closed], patience=60.0
            )
        )
        await asyncio.sleep(10)
        links.append(join(one, two))
        await asyncio.sleep(10)
        assert not fetching.done()
        two.store.put(b"late")
        await fetching
        assert clock.elapsed() < 40.0


@on_manual_clock
async def test_a_silent_source_is_left_after_a_deadline(clock: ManualClock):
    async with room(clock) as here:
        one, two, three = (here.exchange() for _ in range(3))
        name = two.store.put(b"data")
        three.store.put(b"data")
        silent, good = join(one, two, names="ab"), join(one, three, names="ac")
        silent.other.held = []
        await one.fetch([name], sources=only(silent, good), size=100)
        assert one.store.has(name)
        assert clock.elapsed() < 11.0
        silent.other.release()  # the late answer changes nothing
        assert not silent.closed


@on_manual_clock
async def test_a_store_without_room_fails_the_fetch_with_the_stores_sentence(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(MemoryBlockStore(3)), here.exchange()
        name = two.store.put(b"four")
        with pytest.raises(FailureError, match="--disk"):
            await one.fetch([name], sources=only(join(one, two)))
        assert one.statistics().wanted == 0


@on_manual_clock
async def test_a_cancelled_fetch_wants_nothing_any_more(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        link = join(one, two)
        link.other.held = []
        name = two.store.put(b"data")
        fetching = here.tasks.create_task(one.fetch([name], sources=only(link)))
        await asyncio.sleep(0.1)
        fetching.cancel()
        await asyncio.gather(fetching, return_exceptions=True)
        assert one.statistics().wanted == 0
        link.other.release()
        assert not link.closed
        assert not one.store.has(name)


@on_manual_clock
async def test_prefetched_blocks_are_here_when_they_are_needed_and_failures_are_silent(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(MemoryBlockStore(10)), here.exchange()
        name, large = two.store.put(b"small"), two.store.put(b"larger than the store")
        link = join(one, two)
        one.prefetch([name, large], sources=only(link))
        await asyncio.sleep(0.1)
        await one.fetch([name], sources=lambda: pytest.fail("it is here"))


@on_manual_clock
async def test_obtain_fetches_again_what_vanished_before_it_was_read(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        name = two.store.put(b"data")
        link = join(one, two)
        reads = []

        def read() -> bytes | None:
            reads.append(one.store.has(name))
            if len(reads) == 1:
                one.store.discard(name)
            return one.store.get(name)

        assert await one.obtain([name], read, sources=only(link)) == b"data"
        assert reads == [True, True]


@on_manual_clock
async def test_obtain_gives_up_on_a_store_that_keeps_nothing(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        name = two.store.put(b"data")

        def read() -> None:
            one.store.discard(name)

        with pytest.raises(FailureError, match="vanish"):
            await one.obtain([name], read, sources=only(join(one, two)))


@on_manual_clock
async def test_a_flood_of_requests_ends_its_own_link_and_delays_no_other(clock: ManualClock):
    async with room(clock) as here:
        giver = here.exchange()
        name = giver.store.put(bytes(MIB))
        flood, calm = join(None, giver, names="ab"), join(None, giver, names="cb")
        flood.other.held = []
        for number in range(MAX_REQUESTS_WAITING):
            flood.post(BlockRequest(request=number, digest=name))
        await asyncio.sleep(0.1)
        assert len(flood.other.held) == SERVED_AT_ONCE
        assert not flood.closed
        calm.other.held = []
        calm.post(BlockRequest(request=1, digest=name))
        await asyncio.sleep(0.1)
        assert len(calm.other.held) == 1
        for number in range(SERVED_AT_ONCE):
            flood.post(BlockRequest(request=1000 + number, digest=name))
        await asyncio.sleep(0.1)
        assert not flood.closed
        flood.post(BlockRequest(request=10_000, digest=name))
        await asyncio.sleep(0.1)
        assert flood.closed == "it asked for more than 64 blocks at once"
        assert not calm.closed


@on_manual_clock
async def test_requests_of_one_link_are_answered_one_by_one_whatever_they_are_for(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        names = [two.store.put(bytes([number])) for number in range(30)]
        await one.fetch(names, sources=only(join(one, two)))
        assert all(one.store.has(name) for name in names)


@on_manual_clock
async def test_unwanted_payloads_are_refused_before_they_are_received(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        link = join(one, two)
        sending = link.other.post(BlockReply(request=7), b"unasked")
        with pytest.raises(RemoteRefusalError):
            await sending.wait()
        assert link.unwanted == link.charged == ["nobody here asked for that block"]
        assert not link.closed


@on_manual_clock
async def test_an_answer_larger_than_the_block_may_be_is_refused_and_counts_as_a_failure(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        name = two.store.put(bytes(101))
        link = join(one, two)
        with pytest.raises(FailureError, match="bbbbbbbb sent too many bytes"):
            await one.fetch([name], sources=only(link), size=100, patience=5.0)
        assert set(link.unwanted) == {"that block has at most 100 bytes"}


@on_manual_clock
async def test_an_answer_without_a_question_is_charged(clock: ManualClock):
    async with room(clock) as here:
        one, two = here.exchange(), here.exchange()
        link = join(one, two)
        link.other.post(BlockMissing(request=7))
        await asyncio.sleep(0.1)
        assert link.closed == "it answered a request for a block that it was not sent"


@on_manual_clock
async def test_other_messages_are_left_to_others(clock: ManualClock):
    async with room(clock) as here:
        link: Any = join(None, None)
        assert here.exchange().on_message(link, JobAnnounce(manifest=b""), b"") is False
        assert here.exchange().on_offer(link, JobAnnounce(manifest=b""), 5) is None


@on_manual_clock
async def test_a_large_transfer_over_several_links_arrives_whole(clock: ManualClock):
    async with room(clock) as here:
        one, two, three = (here.exchange() for _ in range(3))
        data = bytes(range(256)) * 4096 * 24  # 24 MiB
        blob = put_blob(two.store, data)
        assert put_blob(three.store, data) == blob
        links = join(one, two, names="ab"), join(one, three, names="ac")
        await one.fetch_blobs([blob], sources=only(*links))
        assert get_blob(one.store, blob, limit=len(data)) == data
        replies = [sum(isinstance(message, BlockReply) for message in link.seen) for link in links]
        assert sum(replies) == len(set(blob.blocks))


@on_manual_clock
async def test_a_link_that_is_lost_when_it_is_asked_is_passed_over(clock: ManualClock):
    async with room(clock) as here:
        one, two, three = (here.exchange() for _ in range(3))
        name = three.store.put(b"data")
        dead, good = join(one, two, names="ab"), join(one, three, names="ac")
        dead.closed = "cut, and nobody has said so yet"
        await one.fetch([name], sources=lambda: [dead, good])
        assert one.store.has(name)
        assert clock.elapsed() < 1.0


@on_manual_clock
async def test_messages_that_come_while_the_node_goes_down_start_nothing(clock: ManualClock):
    async with room(clock) as here:
        giver = here.exchange()
        name = giver.store.put(b"data")
    link: Any = join(None, giver).other
    assert giver.on_message(link, BlockRequest(request=1, digest=name), b"")
    assert link.other.seen == []
