"""The two ends of a link between pools, as nodes have them: real identities, TLS, hellos."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from swarm.clock import SystemClock
from swarm.identity.authority import Authority
from swarm.identity.chain import Member
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS
from swarm.net.config import PoolConfig
from swarm.net.handlers import Handlers
from swarm.net.link import Link, Sending
from swarm.net.network import Network
from swarm.net.pool import Pool
from swarm.wire.frames import Buffer
from swarm.wire.messages.base import Message
from swarm.wire.messages.blocks import BlockMissing, BlockRequest
from swarm.wire.messages.hello import Capabilities
from swarm.wire.messages.pipeline import BoundaryTensor, Fence, SharedTensor
from swarm.wire.tensors import TensorHeader

IN_FLIGHT: Final = 2
"""Payloads that a sender keeps under way: the next is ready when one ends."""
_ID: Final = "a" * 52
_FENCE: Final = Fence(job=_ID, step=0, phase="train", source=0, target=1, sender=0, receiver=0)
_ACTIVATION: Final = BoundaryTensor(fence=_FENCE, micro_batch=0, tensor=0, direction="forward", header=None)
_TAKEN: Final = BoundaryTensor(fence=_FENCE, micro_batch=0, tensor=0, direction="backward", header=None)
_ASKED: Final = BlockRequest(request=0, digest=_ID)
_MISSING: Final = BlockMissing(request=0)


def make_members(folder: Path, *names: str, doors: tuple[str, ...] = ()) -> None:
    """Identities of one new swarm, each in its folder below ``folder``; ``doors`` are where they can join."""
    now = SystemClock().wall()
    authority = Authority.create("benchmark", public=False, now=now)
    invite = authority.issue(label="", rights=ALL_RIGHTS, uses=0, join_by=0, addresses=doors, now=now)
    for name in names:
        Identity.join(invite, key=PrivateKey.generate(), now=now).save(folder / name)


def make_pool(
    folder: Path, *, network: Network, handlers: Handlers, listen: tuple[str, int] | None, up: int = 0
) -> Pool:
    """A pool of the member whose identity is in ``folder``; ``up`` caps what it sends, in bytes a second."""
    identity = Identity.load(folder)
    config = PoolConfig(
        role="peer",
        tls=identity.tls_files(folder),
        capabilities=Capabilities(memory=0, device="", torch="", operators="", like=""),
        program="benchmark",
        listen=listen,
        up=up,
    )
    return Pool(config, identity=identity, network=network, clock=SystemClock(), handlers=handlers)


def is_question(message: Message) -> bool:
    """Whether :func:`answer` is due."""
    return not isinstance(message, BlockMissing) and message != _TAKEN


def answer(link: Link, message: Message, payload: Buffer) -> None:
    """Say that a boundary tensor was taken, return a shared one, and lack a block."""
    match message:
        case BlockRequest():
            link.post(_MISSING)
        case BoundaryTensor():
            link.post(_TAKEN)
        case _:
            link.post(message, payload)


def send(link: Link, payload: Buffer) -> Sending:
    """Send ``payload``; its answer is one small message."""
    return link.post(_ACTIVATION, payload)


class _Open(Handlers):
    """Takes every payload, and has nothing else to do."""

    def on_up(self, link: Link) -> None:
        """A link is up."""

    def on_down(self, link: Link, reason: str) -> None:
        """A link has ended."""

    def on_offer(self, link: Link, message: Message, size: int) -> str:
        """Takes it."""
        return ""

    def on_admitted(self, member: Member, credentials: bytes) -> None:
        """A use of the invite was counted."""


class Answering(_Open):
    """The called end: takes boundary tensors and says so, returns shared ones, and lacks every block."""

    def __init__(self) -> None:
        self.payload_bytes = 0
        self.downs = 0

    def on_down(self, link: Link, reason: str) -> None:
        """A link has ended."""
        self.downs += 1

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        """Answers at once."""
        self.payload_bytes += len(payload)
        answer(link, message, payload)


class Asking(_Open):
    """The calling end. One measurement at a time; each returns when the last answer has come."""

    def __init__(self) -> None:
        self._missing = 0
        """Answers that have not come."""
        self._again = 0
        """Small messages that are still to be sent, each when the one before is answered."""
        self._answered = asyncio.Event()

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        """An answer."""
        if self._again:
            self._again -= 1
            link.post(_ASKED)
            return
        self._missing -= 1
        if not self._missing:
            self._answered.set()

    async def stream(self, link: Link, payload: Buffer, *, times: int) -> None:
        """Send ``payload`` so many times, a few under way at a time."""
        self._expect(times)
        sendings: deque[Sending] = deque()
        for _ in range(times):
            if len(sendings) == IN_FLIGHT:
                await sendings.popleft().wait()
            sendings.append(send(link, payload))
        await self._answered.wait()

    async def call(self, link: Link, payload: Buffer) -> None:
        """Send ``payload`` and get it back."""
        self._expect(1)
        size = memoryview(payload).nbytes
        header = TensorHeader("uint8", (size,), (1,))
        shared = SharedTensor(fence=_FENCE, parameter=0, operator=0, direction="value", header=header)
        link.post(shared, payload)
        await self._answered.wait()

    async def chatter(self, link: Link, *, times: int) -> None:
        """Ask so many small questions, one after the other, from within the loop's callbacks."""
        self._expect(1)
        self._again = times - 1
        link.post(_ASKED)
        await self._answered.wait()

    def _expect(self, answers: int) -> None:
        self._missing = answers
        self._answered.clear()


@contextlib.asynccontextmanager
async def called(folder: Path, *, network: Network, host: str) -> AsyncIterator[tuple[Pool, Answering]]:
    """A listening pool that answers, at a port of ``host`` that is free."""
    handlers = Answering()
    async with make_pool(folder, network=network, handlers=handlers, listen=(host, 0)) as pool:
        yield pool, handlers


@contextlib.asynccontextmanager
async def caller(folder: Path, *, network: Network) -> AsyncIterator[tuple[Pool, Asking]]:
    """A pool that asks."""
    handlers = Asking()
    async with make_pool(folder, network=network, handlers=handlers, listen=None) as pool:
        yield pool, handlers


@contextlib.asynccontextmanager
async def calling(folder: Path, address: str, *, network: Network) -> AsyncIterator[tuple[Link, Asking]]:
    """A link with the pool at ``address``."""
    async with caller(folder, network=network) as (pool, handlers):
        yield await pool.dial([address]), handlers
