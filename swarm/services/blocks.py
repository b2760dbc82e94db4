"""Fetches blocks from other peers and gives them blocks: carries out ``swarm.protocol.blocks``.

Reading, hashing and writing happen in the executor. The other half is ``swarm.services.blocks_giving``.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeVar, assert_never

from swarm.clock import Clock
from swarm.data.blobs import expected_block_bytes
from swarm.data.blocks import Blocks, Buffer
from swarm.errors import FailureError, LinkLostError
from swarm.ids import Digest, PeerId, short
from swarm.log import get_log
from swarm.net.link import Link
from swarm.protocol.blocks import BlockMachine, BlockStatistics
from swarm.protocol.blocks_events import (
    Action,
    Ask,
    BlockKept,
    BlockWrong,
    Complete,
    Drop,
    Event,
    Forget,
    GiveUp,
    Keep,
    KeepFailed,
    LookForSources,
    MissingArrived,
    ReplyArrived,
    ReplyRefused,
    Seek,
    SeekerNumber,
    Source,
    SourceLost,
    SourceNumber,
    SourcesSeen,
    Tick,
)
from swarm.services.blocks_giving import BlockGiving, MayHave
from swarm.wire.frames import CloseCode
from swarm.wire.limits import MAX_BLOCK_BYTES
from swarm.wire.messages.base import Message
from swarm.wire.messages.blocks import BlockMissing, BlockReply, BlockRequest
from swarm.wire.records.blobs import Blob

Sources = Callable[[], Sequence[Link]]
"""The links that may have what is wanted, as they are now; looked at again and again."""

Result = TypeVar("Result")

PATIENCE_SECONDS: Final = 30.0
"""How long all sources may lack a block before a fetch fails: peers come back, and get blocks themselves."""

READ_ATTEMPTS: Final = 3
"""How often blocks are fetched and read before it is said that the store does not keep them."""

_log = get_log(__name__)


class _Seeker:
    """One call that waits for blocks."""

    def __init__(self, sources: Sources, done: asyncio.Future[None]) -> None:
        self.sources = sources
        self.done = done

    def finish(self, error: FailureError | None) -> None:
        """Let the call return or raise, unless it was cancelled."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)


class BlockExchange:
    """The block exchange of one node, whose tasks belong to ``tasks``.

    Give it every message of the blocks flow, and every link that goes down. ``may_have`` says whom this node
    gives which block.
    """

    def __init__(
        self,
        store: Blocks,
        *,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        may_have: MayHave = lambda _, __: True,
    ) -> None:
        self.store = store
        self._clock = clock
        self._tasks = tasks
        self.on_liar: Callable[[PeerId, Digest], None] = lambda _, __: None
        """Hears which peer sent other bytes for a block; its link is closed."""
        self._machine = BlockMachine()
        self._wake = asyncio.Event()
        self._watching = False
        self._numbers: dict[Link, SourceNumber] = {}
        self._links: dict[SourceNumber, Link] = {}
        self._seekers: dict[SeekerNumber, _Seeker] = {}
        self._giving = BlockGiving(store, self._start, may_have)
        self._counted = 0

    def statistics(self) -> BlockStatistics:
        """What is wanted now, and of how many links."""
        return self._machine.statistics()

    # Fetching.

    async def fetch(
        self,
        digests: Iterable[Digest],
        *,
        sources: Sources,
        size: int = MAX_BLOCK_BYTES,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Return once all these blocks are in the store; pin them first, so that they stay there.

        ``size`` is the most bytes that one of them has. Waits for sources to appear. Raises FailureError
        where every source has lacked a block for ``patience`` seconds, or where the store has no room.
        """
        await self._seek(dict.fromkeys(digests, size), sources, patience)

    async def fetch_blobs(
        self,
        blobs: Iterable[Blob],
        *,
        sources: Sources,
        patience: float = PATIENCE_SECONDS,
        gentle: bool = False,
    ) -> None:
        """Like :meth:`fetch`, for all blocks of these blobs; ``gentle`` leaves the links to others."""
        blocks = {Digest(name): expected_block_bytes(blob) for blob in blobs for name in blob.blocks}
        await self._seek(blocks, sources, patience, gentle=gentle)

    async def obtain(
        self,
        digests: Collection[Digest],
        read: Callable[[], Result | None],
        *,
        sources: Sources,
        size: int = MAX_BLOCK_BYTES,
    ) -> Result:
        """What ``read`` (run in the executor) makes of these blocks, fetched first.

        ``read`` returns None where a block is missing, as the readers of ``swarm.data`` do: it was damaged
        on disk or evicted meanwhile, and is fetched again. Raises what :meth:`fetch` and ``read`` raise.
        """
        for _ in range(READ_ATTEMPTS):
            await self.fetch(digests, sources=sources, size=size)
            result = await asyncio.get_running_loop().run_in_executor(None, read)
            if result is not None:
                return result
        raise FailureError(
            f"blocks vanish from the block store as soon as they are in it, {READ_ATTEMPTS} times: "
            "give it more with --disk, or check the disk below --home"
        )

    def prefetch(self, digests: Iterable[Digest], *, sources: Sources, size: int = MAX_BLOCK_BYTES) -> None:
        """Begin to fetch blocks that will be needed; where that fails, whoever needs them will hear of it."""
        missing = [digest for digest in digests if not self.store.has(digest)]
        if missing:
            self._start(self._prefetch(missing, sources, size), "prefetch")

    async def _prefetch(self, digests: Iterable[Digest], sources: Sources, size: int) -> None:
        try:
            await self.fetch(digests, sources=sources, size=size)
        except FailureError as error:
            _log.debug("blocks not prefetched", cause=str(error))

    async def _seek(
        self, blocks: Mapping[Digest, int], sources: Sources, patience: float, *, gentle: bool = False
    ) -> None:
        missing = {name: size for name, size in blocks.items() if not self.store.has(name)}
        if not missing:
            return
        self._counted += 1
        number = SeekerNumber(self._counted)
        seeker = self._seekers[number] = _Seeker(sources, asyncio.get_running_loop().create_future())
        try:
            self._feed(Seek(seeker=number, blocks=missing, patience=patience, gentle=gentle))
            await seeker.done
        finally:
            del self._seekers[number]
            self._feed(Forget(seeker=number))

    # Links.

    def on_message(self, link: Link, message: Message, payload: Buffer) -> bool:
        """Take a message of the blocks flow; False for any other. The payload is not to change any more.

        Raises RemoteProtocolError to charge the other side.
        """
        match message:
            case BlockRequest():
                self._giving.requested(link, message)
            case BlockReply():
                size = memoryview(payload).nbytes
                arrived = ReplyArrived(source=self._number(link), request=message.request, size=size)
                self._feed(arrived, payload)
            case BlockMissing():
                self._feed(MissingArrived(source=self._number(link), request=message.request))
            case _:
                return False
        return True

    def on_offer(self, link: Link, message: Message, size: int) -> str | None:
        """Whether a payload of ``size`` bytes that begins is wanted: empty, or a sentence why not.

        None for one of another flow. Raises RemoteProtocolError where too many were not.
        """
        if not isinstance(message, BlockReply):
            return None
        number = self._number(link)
        most = self._machine.most_bytes(number, message.request)
        if most is None:
            unwanted = "nobody here asked for that block"
            link.charge(unwanted)
            return unwanted
        if size > most:
            self._feed(ReplyRefused(source=number, request=message.request))
            return f"that block has at most {most} bytes"
        return ""

    def on_down(self, link: Link) -> None:
        """A link has ended: ask others for what it owed us, and forget what it wanted."""
        self._giving.on_down(link)
        if link in self._numbers:
            self._feed(self._drop(link))

    def _number(self, link: Link) -> SourceNumber:
        number = self._numbers.get(link)
        if number is None:
            self._counted += 1
            number = self._numbers[link] = SourceNumber(self._counted)
            self._links[number] = link
        return number

    def _drop(self, link: Link) -> SourceLost:
        number = self._numbers.pop(link)
        del self._links[number]
        return SourceLost(source=number)

    # Carrying out what the machine decides.

    def _feed(self, event: Event, payload: Buffer = b"") -> None:
        events = deque([event])
        while events:
            for action in self._machine.handle(events.popleft(), now=self._clock.elapsed()):
                events.extend(self._perform(action, payload))
        self._wake.set()
        if not self._watching and self._machine.deadline is not None:
            self._watching = True
            self._start(self._watch(), "blocks")

    def _perform(self, action: Action, payload: Buffer) -> Sequence[Event]:
        """Carry out one action; returns what became of it, where that is known at once."""
        match action:
            case Ask():
                return self._ask(action)
            case Keep():
                kept = self._keep(self._links[action.source], action, payload)
                self._start(kept, f"keep {short(action.digest)}")
            case LookForSources(seeker=number) if number in self._seekers:
                links = dict.fromkeys(self._seekers[number].sources())
                seen = tuple(Source(number=self._number(link), peer=link.peer) for link in links)
                return [SourcesSeen(seeker=number, sources=seen)]
            case Complete(seeker=number) if number in self._seekers:
                self._seekers[number].finish(None)
            case GiveUp(seeker=number, sentence=sentence) if number in self._seekers:
                self._seekers[number].finish(FailureError(sentence))
            case Drop() | LookForSources() | Complete() | GiveUp():
                pass
            case _:
                assert_never(action)
        return ()

    def _ask(self, action: Ask) -> Sequence[Event]:
        link = self._links.get(action.source)
        if link is None:
            return ()
        try:
            link.post(BlockRequest(request=action.request, digest=action.digest))
        except LinkLostError:
            return [self._drop(link)]
        return ()

    async def _keep(self, link: Link, action: Keep, payload: Buffer) -> None:
        put = partial(self.store.put, payload, expected=action.digest)
        try:
            name = await asyncio.get_running_loop().run_in_executor(None, put)
        except FailureError as error:
            self._feed(KeepFailed(digest=action.digest, sentence=str(error)))
            return
        if name == action.digest:
            self._feed(BlockKept(digest=action.digest))
            return
        self._feed(BlockWrong(source=action.source, peer=link.peer, digest=action.digest))
        self.on_liar(link.peer, action.digest)
        await link.aclose(f"your block {short(action.digest)} has another hash", CloseCode.PROTOCOL)

    def _start(self, work: Coroutine[None, None, None], name: str) -> None:
        """Start a task, unless the node is going down already: then nobody waits for it."""
        try:
            self._tasks.create_task(work, name=name)
        except RuntimeError:
            work.close()

    async def _watch(self) -> None:
        """Tick the machine at its deadlines, as long as it has one."""
        while (deadline := self._machine.deadline) is not None:
            self._wake.clear()
            try:
                async with asyncio.timeout(deadline - self._clock.elapsed()):
                    await self._wake.wait()
            except TimeoutError:
                self._feed(Tick())
        self._watching = False
