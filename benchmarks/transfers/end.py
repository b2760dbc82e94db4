"""A node on a host of a lab that has a stage's snapshot, lies about it, or fetches it: a command a line.

::

    python -m benchmarks.transfers.end FOLDER PARENT KIND

KIND is ``receiver``, ``donor`` or ``liar``; what is said on standard input and output is as of
``benchmarks.links.lab_end``. The commands are the methods of :class:`End`.
"""

import asyncio
import contextlib
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from benchmarks.links.lab_end import PORT, obey_lines
from bootstrap.commandline import InterruptedRunError
from bootstrap.node import NOTHING
from bootstrap.running import run
from swarm.clock import SystemClock, elapsed
from swarm.data.blobs import expected_block_bytes
from swarm.data.tensors import put_tensor
from swarm.identity.membership import Identity
from swarm.ids import Digest
from swarm.net.address import Address
from swarm.net.link import Link
from swarm.services.blocks_giving import BlockGiving
from swarm.services.node import Node, NodeConfig
from swarm.wire.limits import GIB, MIB
from swarm.wire.records.blobs import Blob

TENSOR_BYTES: Final = 4 * MIB
"""Of each tensor of the snapshot."""


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """What a transfer took, from when it was asked for."""

    seconds: float
    before: int
    """Bytes of the snapshot that were here already."""
    given: dict[str, int]
    """Bytes of blocks that came from each peer in this run, wrong ones too."""
    trouble: tuple[str, ...]
    """What this node has told of its troubles."""


class _CountingNode(Node):
    """A node that knows what each peer has given it."""

    def __init__(self, config: NodeConfig, *, identity: Identity) -> None:
        super().__init__(config, identity=identity, clock=SystemClock())
        self.changed = asyncio.Event()
        self._given: Counter[str] = Counter()

    def on_up(self, link: Link) -> None:
        """A link is up."""
        super().on_up(link)
        self.changed.set()

    def on_down(self, link: Link, reason: str) -> None:
        """A link has ended."""
        self._given[link.peer] += link.statistics().payload_received
        super().on_down(link, reason)

    def given(self) -> dict[str, int]:
        """Bytes by peer, on links that are up and on those that have ended."""
        given = self._given.copy()
        for peer, link in self.links.items():
            given[peer] += link.statistics().payload_received
        return dict(given)


class End:
    """What can be asked of this end."""

    def __init__(self, node: _CountingNode, tasks: asyncio.TaskGroup) -> None:
        self._node = node
        self._store = node.exchange.store
        self._tasks = tasks
        self._fetching: asyncio.Task[Fetched] | None = None

    async def obey(self, line: str) -> Any:
        """Do what one line says; returns its answer."""
        command, *words = line.split(maxsplit=1)
        return await getattr(self, command)(*words)

    async def make(self, size: str) -> list[Blob]:
        """The same snapshot of ``size`` bytes at every end that makes one."""
        return await asyncio.to_thread(self._made, int(size))

    def _made(self, size: int) -> list[Blob]:
        random = np.random.default_rng(7)
        tensors = [random.integers(0, 255, TENSOR_BYTES, np.uint8) for _ in range(size // TENSOR_BYTES)]
        return [put_tensor(self._store, f"t{i}", t, "uint8").blob for i, t in enumerate(tensors)]

    async def linked(self, count: str) -> list[str]:
        """Wait for so many links; with whom."""
        while len(self._node.links) < int(count):
            self._node.changed.clear()
            await self._node.changed.wait()
        return sorted(self._node.links)

    async def fetch(self, blobs: str) -> None:
        """Begin to fetch these blobs, given as JSON, from every link there is."""
        wanted = msgspec.json.decode(blobs, type=list[Blob])
        self._fetching = self._tasks.create_task(self._fetch(wanted))

    async def _fetch(self, blobs: list[Blob]) -> Fetched:
        began, before = elapsed(), self._store.size
        blocks = {Digest(name): expected_block_bytes(blob) for blob in blobs for name in blob.blocks}
        self._store.pin("stage", blocks)
        await self._node.exchange.fetch_blobs(blobs, sources=lambda: list(self._node.links.values()))
        seconds = elapsed() - began
        trouble = tuple(event.sentence for event in self._node.story.events() if event.kind == "trouble")
        return Fetched(seconds=seconds, before=before, given=self._node.given(), trouble=trouble)

    async def reach(self, size: str) -> int:
        """Wait until there are so many bytes here; how many there are."""
        while self._store.size < int(size):  # noqa: ASYNC110 - a store tells nobody
            await asyncio.sleep(0.02)
        return self._store.size

    async def fetched(self) -> Fetched:
        """Wait for the end of the fetch."""
        assert self._fetching is not None
        return await self._fetching


def _lie(giving: BlockGiving, name: Digest) -> bytes | None:
    """Other bytes of the right length."""
    data = giving._store.get(name)  # noqa: SLF001 - what a liar would change in its copy of this program
    return None if data is None else data[:-1] + bytes([data[-1] ^ 1])


async def _serve(folder: Path, kind: str) -> None:
    if kind == "liar":
        setattr(BlockGiving, "_read", _lie)  # noqa: B010 - as above
    config = NodeConfig(
        folder=folder, role="bootstrap", listen=Address("", PORT), disk=GIB, capabilities=NOTHING
    )
    async with _CountingNode(config, identity=Identity.load(folder)) as node, asyncio.TaskGroup() as tasks:
        await obey_lines(End(node, tasks).obey, node.identity.peer)


if __name__ == "__main__":
    with contextlib.suppress(InterruptedRunError):
        run(lambda: _serve(Path(sys.argv[1]), sys.argv[3]), parent=int(sys.argv[2]))
