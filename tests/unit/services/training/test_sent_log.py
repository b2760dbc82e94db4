"""What was sent is sent again, from memory or from disk, for as long as it is kept."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from swarm.data.blocks import Buffer, MemoryBlockStore
from swarm.errors import FailureError
from swarm.services.training import sent_log as module
from swarm.services.training.sent_log import Kept, SentLog
from swarm.wire.messages.pipeline import BoundaryTensor, Fence, Phase
from swarm.wire.tensors import TensorHeader

JOB = "j" * 52
HEADER = TensorHeader("float32", (256,), (1,))
SIZE = 1024


def message(step: int, micro_batch: int = 0, *, target: int = 1, phase: Phase = "train") -> BoundaryTensor:
    fence = Fence(job=JOB, step=step, phase=phase, source=0, target=target, sender=1, receiver=1)
    return BoundaryTensor(fence=fence, micro_batch=micro_batch, tensor=3, direction="forward", header=HEADER)


def payload(step: int, micro_batch: int = 0) -> bytes:
    return bytes([step, micro_batch]) * (SIZE // 2)


class Heard(list[tuple[int, int, bytes]]):
    """Steps, micro-batches and payloads that were sent again."""

    def __call__(self, sent: Kept, data: Buffer) -> None:
        assert isinstance(sent, BoundaryTensor)
        self.append((sent.fence.step, sent.micro_batch, bytes(data)))


class World:
    def __init__(self, tasks: asyncio.TaskGroup, *, disk: int = 2**20, first: int = 0) -> None:
        self.store = MemoryBlockStore(disk)
        self.told: list[str] = []
        self.log = SentLog("stage 0", first, blocks=self.store, tasks=tasks, tell=self.told.append)

    def send(self, step: int, micro_batch: int = 0, **changes: Any) -> None:
        self.log.keep(message(step, micro_batch, **changes), payload(step, micro_batch))

    async def again(self, step: int, target: int = 1) -> Heard:
        heard = Heard()
        await self.log.replay(target, step, heard)
        return heard

    async def written(self) -> None:
        """Return once nothing is on its way to the disk."""
        writing = [task for task in asyncio.all_tasks() if task.get_name() == "write what was sent"]
        async with asyncio.timeout(30):
            await asyncio.gather(*writing)


@pytest.fixture
async def tasks() -> AsyncIterator[asyncio.TaskGroup]:
    async with asyncio.TaskGroup() as group:
        yield group


async def test_what_was_sent_in_a_step_is_sent_again_and_what_comes_later_as_it_comes(
    tasks: asyncio.TaskGroup,
) -> None:
    world = World(tasks)
    world.send(4, 0)
    world.send(4, 1)
    world.send(4, 0, target=2)
    world.send(5, 0)
    assert not world.log.asked(1, 4)
    heard = await world.again(4)
    assert heard == [(4, 0, payload(4, 0)), (4, 1, payload(4, 1))]
    assert world.log.asked(1, 4)
    world.send(4, 2)
    world.send(5, 1)
    assert heard[2:] == [(4, 2, payload(4, 2))]
    world.log.begin_copies()
    world.send(4, 3)
    assert len(heard) == 3
    assert (world.log.memory, world.log.disk) == (7 * SIZE, 0)


async def test_what_a_line_covers_goes_and_is_missed(tasks: asyncio.TaskGroup) -> None:
    world = World(tasks, first=2)
    world.send(1)
    for step in range(2, 6):
        world.send(step)
    world.log.trim(4)
    assert (world.log.first, world.log.memory) == (4, 2 * SIZE)
    assert len(await world.again(4)) == 1
    with pytest.raises(FailureError, match="what was sent in step 3 is kept no longer, only from 4 on"):
        await world.again(3)
    world.log.trim(3)
    assert world.log.first == 4
    world.log.close()
    assert world.log.memory == 0


async def test_beyond_its_memory_the_oldest_steps_are_on_disk(
    tasks: asyncio.TaskGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MEMORY", 3 * SIZE)
    world = World(tasks)
    for step in range(8):
        world.send(step)
        await world.written()
    assert (world.log.memory, world.log.disk) == (3 * SIZE, 5 * SIZE)
    for step in range(8):
        assert await world.again(step) == [(step, 0, payload(step))]
    world.log.trim(5)
    assert world.log.disk == 0
    assert world.told == []
    world.store.put(bytes(world.store.limit))  # nothing is pinned any more


@pytest.mark.parametrize("full", ["disk", "share"])
async def test_where_the_disk_takes_no_more_the_oldest_step_is_given_up_and_told_once(
    tasks: asyncio.TaskGroup, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    monkeypatch.setattr(module, "MEMORY", 2 * SIZE)
    if full == "share":
        monkeypatch.setattr(module, "DISK", SIZE)
    world = World(tasks, disk=SIZE)
    for step in range(6):
        world.send(step)
        await world.written()
    assert world.log.first > 1
    assert world.log.memory <= 2 * SIZE
    [told] = world.told
    assert told.startswith("what was sent before step ")
    with pytest.raises(FailureError, match="kept no longer"):
        await world.again(0)
    assert await world.again(5) == [(5, 0, payload(5))]


async def test_a_disk_that_is_too_slow_does_not_fill_the_memory(
    tasks: asyncio.TaskGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MEMORY", SIZE)
    monkeypatch.setattr(module, "MOST_IN_MEMORY", 3 * SIZE)
    world = World(tasks)
    for step in range(10):
        world.send(step)
        assert world.log.memory <= 3 * SIZE
    assert world.told == ["what was sent before step 1 is not kept for replays: this disk is too slow for it"]
    world.log.close()
