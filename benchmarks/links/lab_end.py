"""One end of links on a host of a lab: a command a line on standard input, an answer of JSON a line.

It is a pool, or with ``node`` a whole node without torch, of the member whose identity is in a folder::

    python -m benchmarks.links.lab_end FOLDER PARENT [node | UP]

PARENT is the process that it ends with, UP the cap on what it sends, in bytes a second. The first line that
it writes is the port that it listens on. The commands are the methods of :class:`End`.
"""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.links import ours
from bootstrap.commandline import InterruptedRunError
from bootstrap.node import NOTHING
from bootstrap.running import run
from swarm.clock import SystemClock, elapsed
from swarm.identity.membership import Identity
from swarm.net.address import Address
from swarm.net.link import Link
from swarm.net.network import SystemNetwork
from swarm.net.pool import Pool
from swarm.services.node import Node, NodeConfig
from swarm.wire.limits import MIB
from swarm.wire.messages.base import Message
from swarm.wire.messages.blocks import BlockMissing

PAYLOAD_BYTES: Final = 8 * MIB
"""Of each of the payloads that a stream is made of."""
PORT: Final = 7423
WARM_UP_SECONDS: Final = 1.0
"""Left out of each measurement: the buffers on the way fill."""


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """A link came or went, ``at`` a time of ``swarm.clock.elapsed``, which all hosts of a lab share."""

    what: str
    at: float
    why: str = ""


class Diary:
    """Which links came and went."""

    def __init__(self) -> None:
        self._happenings: list[Happening] = []
        self._changed = asyncio.Event()

    def note(self, what: str, why: str = "") -> None:
        """It happens now."""
        self._happenings.append(Happening(what=what, at=elapsed(), why=why))
        self._changed.set()

    async def read(self, number: int) -> Happening:
        """What happened as this number, from 0; waits for it."""
        while len(self._happenings) <= number:
            self._changed.clear()
            await self._changed.wait()
        return self._happenings[number]

    def __len__(self) -> int:
        """How much has happened."""
        return len(self._happenings)


class _Both(ours.Asking):
    """Asks, and answers whoever asks; remembers which links came and went."""

    def __init__(self) -> None:
        super().__init__()
        self.diary = Diary()

    def on_up(self, link: Link) -> None:
        """A link is up."""
        self.diary.note("up")

    def on_down(self, link: Link, reason: str) -> None:
        """A link has ended."""
        self.diary.note("down", reason)

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        """Asks on or answers."""
        if isinstance(message, BlockMissing):
            super().on_message(link, message, payload)
        elif ours.is_question(message):
            ours.answer(link, message, payload)


class _WatchedNode(Node):
    """A node that remembers which links came and went."""

    def __init__(self, config: NodeConfig, *, identity: Identity) -> None:
        super().__init__(config, identity=identity, clock=SystemClock())
        self.diary = Diary()

    def on_up(self, link: Link) -> None:
        """A link is up."""
        super().on_up(link)
        self.diary.note("up")

    def on_down(self, link: Link, reason: str) -> None:
        """A link has ended."""
        super().on_down(link, reason)
        self.diary.note("down", reason)


class End:
    """What can be asked of this end."""

    def __init__(self, pool: Pool, handlers: _Both | _WatchedNode, tasks: asyncio.TaskGroup) -> None:
        self._pool = pool
        self._handlers = handlers
        self._tasks = tasks
        self._streams: list[asyncio.Task[None]] = []

    async def obey(self, line: str) -> Any:
        """Do what one line says; returns its answer."""
        command, *words = line.split()
        return await getattr(self, command)(*words)

    async def dial(self, address: str) -> None:
        """A link with the end at ``address``."""
        await self._pool.dial([address])

    async def stream(self) -> None:
        """Send payloads over every link for ever, a few under way on each."""
        self._streams += [self._tasks.create_task(_stream(link)) for link in self._pool.links.values()]

    async def rest(self) -> None:
        """Stop that; what the system holds already still goes out."""
        for task in self._streams:
            task.cancel()
        self._streams.clear()

    async def wait(self, seconds: str) -> None:
        """Let time pass."""
        await asyncio.sleep(float(seconds))

    async def ask(self, times: str, pause: str) -> list[float]:
        """Send so many small requests over the first link, with pauses between; seconds to each answer."""
        [link, *_] = self._pool.links.values()
        handlers = self._handlers
        assert isinstance(handlers, _Both)
        seconds = []
        for _ in range(int(times)):
            began = elapsed()
            await handlers.chatter(link, times=1)
            seconds.append(elapsed() - began)
            await asyncio.sleep(float(pause))
        return seconds

    async def goodput(self, seconds: str) -> float:
        """Bits a second of payload that come over all links, after one second more."""
        await asyncio.sleep(WARM_UP_SECONDS)
        began, before = elapsed(), self._received
        await asyncio.sleep(float(seconds))
        return (self._received - before) * 8 / (elapsed() - began)

    async def happened(self) -> int:
        """How often a link came or went."""
        return len(self._handlers.diary)

    async def happening(self, number: str, seconds: str) -> Happening:
        """What happened as this number, from 0; waits for it, so long at most."""
        async with asyncio.timeout(float(seconds)):
            return await self._handlers.diary.read(int(number))

    @property
    def _received(self) -> int:
        return sum(link.statistics().payload_received for link in self._pool.links.values())


async def _stream(link: Link) -> None:
    payload = bytes(PAYLOAD_BYTES)
    sending = ours.send(link, payload)
    while True:
        following = ours.send(link, payload)
        try:
            await sending.wait()
        except BaseException:
            sending.cancel()
            following.cancel()
            raise
        sending = following


@contextlib.asynccontextmanager
async def _pool(folder: Path, up: int) -> AsyncIterator[tuple[Pool, _Both]]:
    handlers = _Both()
    network, listen = SystemNetwork(), ("", PORT)
    async with ours.make_pool(folder, network=network, handlers=handlers, listen=listen, up=up) as pool:
        yield pool, handlers


@contextlib.asynccontextmanager
async def _node(folder: Path) -> AsyncIterator[tuple[Pool, _WatchedNode]]:
    config = NodeConfig(
        folder=folder, role="bootstrap", listen=Address("", PORT), disk=MIB, capabilities=NOTHING
    )
    async with _WatchedNode(config, identity=Identity.load(folder)) as node:
        yield node.pool, node


async def _serve(folder: Path, kind: str) -> None:
    opened = _node(folder) if kind == "node" else _pool(folder, int(kind))
    async with opened as (pool, handlers), asyncio.TaskGroup() as tasks:
        await obey_lines(End(pool, handlers, tasks).obey, pool.listening[0].port)


async def obey_lines(obey: Callable[[str], Awaitable[Any]], first: Any) -> None:
    """Write what comes first, and then the answer to each line on standard input, until that ends."""
    commands = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(commands), sys.stdin
    )
    _tell(first)
    while line := await commands.readline():
        _tell(await obey(line.decode()))


def _tell(answer: Any) -> None:
    print(msgspec.json.encode(answer).decode(), flush=True)


if __name__ == "__main__":
    with contextlib.suppress(InterruptedRunError):
        run(lambda: _serve(Path(sys.argv[1]), (sys.argv[3:] or ["0"])[0]), parent=int(sys.argv[2]))
