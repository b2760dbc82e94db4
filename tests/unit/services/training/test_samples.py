"""A stage's samples: what is looked for ahead is bounded, and none of it keeps the event loop."""

import threading
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from swarm.data.blocks import MemoryBlockStore
from swarm.data.dataset import prepare
from swarm.data.sampler import indices
from swarm.services.training import samples as module
from swarm.services.training.samples import AHEAD_MICRO_BATCHES, Samples

FIELD = np.arange(8 * 4096, dtype=np.int64).reshape(-1, 1)


class Exchange:
    """Has everything; remembers what was wanted ahead of its time."""

    def __init__(self, store: MemoryBlockStore) -> None:
        self.store = store
        self.ahead: list[list[str]] = []

    def prefetch(self, digests: Iterable[str], *, sources: Callable[[], Any]) -> None:
        self.ahead.append(list(digests))


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The (step, micro-batch) of every look at the sampler; none may be on this thread."""
    found: list[tuple[int, int]] = []

    def counted(samples: int, *, step: int, micro_batch: int, **rest: Any) -> Any:
        assert threading.current_thread() is not threading.main_thread()
        found.append((step, micro_batch))
        return indices(samples, step=step, micro_batch=micro_batch, **rest)

    monkeypatch.setattr(module, "indices", counted)
    return found


def samples(micro_batches: int, *, steps: int = 3) -> Samples:
    store = MemoryBlockStore(1 << 30)
    manifest = SimpleNamespace(
        dataset=prepare([FIELD], store),
        held_out=None,
        micro_batch_size=8,
        micro_batches=micro_batches,
        steps=steps,
        seed=1,
    )
    blocks = SimpleNamespace(exchange=Exchange(store), sources=lambda _: list)
    job = SimpleNamespace(manifest=manifest)
    return Samples(cast("Any", job), cast("Any", blocks), train=[0], evaluate=[])


async def test_however_many_micro_batches_a_step_has_few_are_looked_for_ahead(
    looked: list[tuple[int, int]],
) -> None:
    reader = samples(4096)
    items = await reader.read("train", 0, 0)
    assert items[0].shape == (8, 1)
    assert looked == [(0, index) for index in range(AHEAD_MICRO_BATCHES + 1)]
    looked.clear()
    await reader.read("train", 0, 1)
    assert looked == [(0, 1), (0, AHEAD_MICRO_BATCHES + 1)]


async def test_two_steps_are_looked_for_ahead_and_nothing_after_the_last(
    looked: list[tuple[int, int]],
) -> None:
    reader = samples(2)
    await reader.read("train", 0, 0)
    assert looked == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    looked.clear()
    for step, micro_batch in [(0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]:
        await reader.read("train", step, micro_batch)
    assert looked == [(0, 1), (2, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
