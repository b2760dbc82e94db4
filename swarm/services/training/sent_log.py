"""What a stage has sent to the others, kept for whoever makes their steps once more (decisions D10, 0028).

Of every training step all that changed another stage's state: boundary tensors and gradients,
acknowledgements among them, gradients and values of shared parameters, step records. First in memory, then on
disk, and where that takes no more it is given up from the oldest step on, with a sentence. What a line covers
goes.
"""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from swarm.data.blobs import get_blob, put_blob
from swarm.data.blocks import Blocks, Buffer
from swarm.errors import FailureError
from swarm.ids import Digest
from swarm.wire.limits import MAX_PAYLOAD_BYTES, MIB
from swarm.wire.messages.pipeline import BoundaryTensor, SharedTensor, StepRecord
from swarm.wire.records.blobs import Blob

MEMORY: Final = 64 * MIB
"""Bytes of payloads that one stage keeps in memory; more goes to disk, oldest steps first."""

MOST_IN_MEMORY: Final = 4 * MEMORY
"""Where the disk is slower than what comes, the oldest steps are given up beyond that."""

DISK: Final = 2048 * MIB
"""Bytes that one stage keeps on disk at most."""

Kept = BoundaryTensor | SharedTensor | StepRecord
Send = Callable[[Kept, Buffer], object]


@dataclass(slots=True)
class _Sent:
    """A message, and its payload where it is now."""

    message: Kept
    payload: Buffer | Blob


@dataclass(slots=True)
class _Step:
    """All that was sent in one step."""

    sent: list[_Sent]
    memory: int = 0
    disk: int = 0


class SentLog:
    """What one stage has sent, by step. ``first`` is the earliest step of which all is here."""

    def __init__(
        self,
        owner: str,
        first: int,
        *,
        blocks: Blocks,
        tasks: asyncio.TaskGroup,
        tell: Callable[[str], object],
    ) -> None:
        self.first = first
        self.memory = 0
        """Bytes of payloads in memory."""
        self.disk = 0
        """Bytes of payloads on disk."""
        self._owner = owner
        self._blocks = blocks
        self._tasks = tasks
        self._tell = tell
        self._steps: dict[int, _Step] = {}
        self._copies: dict[tuple[int, int], Send] = {}
        self._spilling: asyncio.Task[None] | None = None
        self._told = False

    def keep(self, message: Kept, payload: Buffer = b"") -> None:
        """Remember what is being sent, and send it to whoever has asked for it, too."""
        number, target = message.fence.step, message.fence.target
        copy = self._copies.get((target, number))
        if copy is not None:
            copy(message, payload)
        if number < self.first:
            return
        step, size = self._steps.setdefault(number, _Step([])), memoryview(payload).nbytes
        step.sent.append(_Sent(message, payload))
        step.memory += size
        self.memory += size
        if self.memory > MEMORY:
            self._spill()

    def trim(self, before: int) -> None:
        """Let go of all steps before ``before``."""
        for number in [number for number in self._steps if number < before]:
            step = self._steps.pop(number)
            self.memory -= step.memory
            self.disk -= step.disk
            self._blocks.unpin(self._of(number))
        for key in [key for key in self._copies if key[1] < before]:
            del self._copies[key]
        self.first = max(self.first, before)

    def close(self) -> None:
        """Let go of everything."""
        self.trim(max(self._steps, default=self.first) + 1)
        if self._spilling is not None:
            self._spilling.cancel()

    # For whoever catches up.

    def begin_copies(self) -> None:
        """Somebody else catches up now."""
        self._copies.clear()

    def asked(self, target: int, step: int) -> bool:
        """Whether it was asked for already what was sent to ``target`` in ``step``."""
        return (target, step) in self._copies

    async def replay(self, target: int, step: int, send: Send) -> None:
        """Give ``send`` what was sent to ``target`` in ``step``, and what will be.

        Raises FailureError where it is not all here any more.
        """
        if step < self.first:
            raise FailureError(f"what was sent in step {step} is kept no longer, only from {self.first} on")
        self._copies[target, step] = send
        known = self._steps.get(step, _Step([]))
        for sent in [one for one in known.sent if one.message.fence.target == target]:
            send(sent.message, await self._payload(sent))

    async def _payload(self, sent: _Sent) -> Buffer:
        payload = sent.payload
        if not isinstance(payload, Blob):
            return payload
        run = asyncio.get_running_loop().run_in_executor
        found = await run(None, lambda: get_blob(self._blocks, payload, limit=MAX_PAYLOAD_BYTES))
        if found is None:
            raise FailureError(f"what was sent in step {sent.message.fence.step} is damaged on the disk")
        return found

    # Where there is much of it.

    def _spill(self) -> None:
        """Make room in memory."""
        while self.memory > MOST_IN_MEMORY:
            self._give_up("this disk is too slow for it")
        if self._spilling is None or self._spilling.done():
            self._spilling = self._tasks.create_task(self._write(), name="write what was sent")

    async def _write(self) -> None:
        run = asyncio.get_running_loop().run_in_executor
        while self.memory > MEMORY:
            number, step = min((number, step) for number, step in self._steps.items() if step.memory)
            if self.disk + step.memory > DISK:
                self._give_up("it is over its share of the disk")
                continue
            entries = list(_in_memory(step))
            try:
                blobs = await run(None, self._put, number, entries)
            except FailureError as error:
                self._give_up(str(error))
                continue
            if self._steps.get(number) is not step:  # a line has covered it meanwhile
                self._blocks.unpin(self._of(number))
                continue
            for sent, blob in zip(entries, blobs, strict=True):
                sent.payload = blob
            written = sum(blob.size for blob in blobs)
            step.memory, step.disk = step.memory - written, step.disk + written
            self.memory, self.disk = self.memory - written, self.disk + written

    def _put(self, number: int, entries: list[_Sent]) -> list[Blob]:
        """In the executor."""
        with self._blocks.holding() as held:
            blobs = [put_blob(held, sent.payload) for sent in entries if not isinstance(sent.payload, Blob)]
            self._blocks.pin(self._of(number), (Digest(name) for blob in blobs for name in blob.blocks))
        return blobs

    def _give_up(self, why: str) -> None:
        """Let go of the oldest step; who lacks it begins from a newer line, or goes back."""
        self.trim(min(self._steps) + 1)
        if not self._told:
            self._told = True
            self._tell(f"what was sent before step {self.first} is not kept for replays: {why}")

    def _of(self, number: int) -> str:
        return f"{self._owner} sent in {number}"


def _in_memory(step: _Step) -> Iterator[_Sent]:
    return (one for one in step.sent if not isinstance(one.payload, Blob) and memoryview(one.payload).nbytes)
