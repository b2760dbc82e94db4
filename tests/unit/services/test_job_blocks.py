"""A job's states: the last two of each stage stay, whatever is tried in between."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.data.blobs import put_blob
from swarm.data.blocks import MemoryBlockStore
from swarm.ids import Digest, JobId, PeerId
from swarm.services.blocks import BlockExchange
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.withholding import Withholding
from swarm.testing.clock import ManualClock
from swarm.testing.manifests import sample_manifest
from swarm.wire.records.blobs import Blob

BLOCK = 100
ROOM = 5
JOB = Job(id=JobId("j" * 52), envelope=b"", manifest=sample_manifest(), author=PeerId("a" * 32))


def blocks_of(tasks: asyncio.TaskGroup) -> tuple[JobBlocks, MemoryBlockStore]:
    """With room for some blocks, and nobody to fetch others from."""
    store = MemoryBlockStore(ROOM * BLOCK)
    exchange = BlockExchange(store, clock=ManualClock(), tasks=tasks)
    context: Any = SimpleNamespace(links={})
    return JobBlocks(context, exchange, Withholding(list)), store


def state(store: MemoryBlockStore, number: int) -> Blob:
    return put_blob(store, bytes([number]) * BLOCK)


def crowd(store: MemoryBlockStore) -> None:
    """Fill the store with what nobody has pinned."""
    for number in range(ROOM - 2):
        put_blob(store, bytes([200 + number]) * BLOCK)


def there(store: MemoryBlockStore, *blobs: Blob) -> list[bool]:
    crowd(store)
    return [store.has(Digest(name)) for blob in blobs for name in blob.blocks]


async def test_the_last_two_states_of_a_stage_stay_and_go_with_the_job() -> None:
    async with asyncio.TaskGroup() as tasks:
        blocks, store = blocks_of(tasks)
        states = []
        for step in range(3):
            states.append(state(store, step))
            blocks.pin_state(JOB, "stage 0", step, states[-1:])
        assert there(store, *states) == [False, True, True]
        blocks.pin_state(JOB, "stage 0", 2, states[-1:])
        blocks.pin_state(JOB, "stage 0", 2, states[-1:])
        assert there(store, *states)[1:] == [True, True]
        blocks.release(JOB)
        for number in range(ROOM):
            put_blob(store, bytes([100 + number]) * BLOCK)
        assert not store.has(Digest(states[2].blocks[0]))


async def test_a_state_that_could_not_be_had_takes_the_place_of_none() -> None:
    async with asyncio.TaskGroup() as tasks:
        blocks, store = blocks_of(tasks)
        kept = [state(store, step) for step in range(2)]
        for step, blob in enumerate(kept):
            await blocks.fetch_state(JOB, "line", step, [blob])
        for step in range(2, 5):
            nowhere = Blob(size=BLOCK, blocks=(Digest(chr(ord("a") + step) * 52),))
            fetching = tasks.create_task(blocks.fetch_state(JOB, "line", step, [nowhere]))
            await asyncio.sleep(0)
            fetching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await fetching
        assert there(store, *kept) == [True, True]
