"""A stage's samples: fetched ahead of the pipeline, and only the fields that the stage reads (D11)."""

import asyncio
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from swarm.data.dataset import Reader
from swarm.data.sampler import held_out_indices, indices
from swarm.data.tensors import Array
from swarm.ids import Digest
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.train.transforms import Draw, transformed
from swarm.wire.messages.pipeline import Phase

AHEAD_STEPS: Final = 2
AHEAD_MICRO_BATCHES: Final = 64
"""How far ahead blocks are fetched before they are needed: so many steps, but no more micro-batches."""


class Samples:
    """Reads micro-batches for one stage. ``fields`` are the positions of the model inputs that it reads."""

    def __init__(self, job: Job, blocks: JobBlocks, *, train: Sequence[int], evaluate: Sequence[int]) -> None:
        manifest, store = job.manifest, blocks.exchange.store
        self._job = job
        self._blocks = blocks
        self._fields: dict[Phase, tuple[int, ...]] = {"train": tuple(train), "evaluate": tuple(evaluate)}
        self._readers: dict[Phase, Reader] = {"train": Reader(manifest.dataset, store)}
        if manifest.held_out is not None:
            self._readers["evaluate"] = Reader(manifest.held_out, store)
        self._ahead = min(AHEAD_STEPS * manifest.micro_batches, AHEAD_MICRO_BATCHES)
        self._wanted = 0
        """Micro-batches, from the first of the run on, whose blocks have been asked for."""

    async def read(self, phase: Phase, step: int, micro_batch: int) -> dict[int, Array]:
        """The items of one micro-batch by field, each (micro_batch_size, ...).

        Raises FailureError where blocks cannot be had.
        """
        fields = self._fields[phase]
        if not fields:
            return {}
        loop, reader = asyncio.get_running_loop(), self._readers[phase]
        chosen = await loop.run_in_executor(None, self._indices, phase, step, micro_batch)

        def read() -> dict[int, Array] | None:
            found = {}
            for field in fields:
                items = reader.read(field, chosen)
                if items is None:
                    return None
                found[field] = self._transformed(phase, step, field, items, chosen)
            return found

        if phase == "train":
            later = await loop.run_in_executor(None, self._later, step, micro_batch)
            self._blocks.exchange.prefetch(later, sources=self._blocks.sources(self._job))
        names = reader.blocks_for(fields, chosen)
        if all(self._blocks.exchange.store.has(name) for name in names):
            found = await loop.run_in_executor(None, read)
            if found is not None:
                return found
        sources = self._blocks.sources(self._job)
        return await self._blocks.exchange.obtain(names, read, sources=sources)

    def _transformed(
        self, phase: Phase, step: int, field: int, items: Array, chosen: NDArray[np.int64]
    ) -> Array:
        """In the executor: what the model reads of a field's items."""
        transforms = self._readers[phase].dataset.transforms
        if not transforms:
            return items
        draw = Draw(seed=self._job.manifest.seed, step=step, samples=chosen, field=field)
        return transformed(items, transforms[field], draw)

    def _later(self, step: int, micro_batch: int) -> list[Digest]:
        """The blocks of the micro-batches that come within reach now; in the executor, since it computes."""
        manifest, reader = self._job.manifest, self._readers["train"]
        at = step * manifest.micro_batches + micro_batch
        end = min(at + 1 + self._ahead, manifest.steps * manifest.micro_batches)
        wanted: dict[Digest, None] = {}
        for position in range(max(self._wanted, at + 1), end):
            chosen = self._indices("train", *divmod(position, manifest.micro_batches))
            wanted.update(dict.fromkeys(reader.blocks_for(self._fields["train"], chosen)))
        self._wanted = max(self._wanted, end)
        return list(wanted)

    def _indices(self, phase: Phase, step: int, micro_batch: int) -> NDArray[np.int64]:
        manifest = self._job.manifest
        if phase == "evaluate":
            return held_out_indices(micro_batch, manifest.micro_batch_size)
        return indices(
            manifest.dataset.samples,
            seed=manifest.seed,
            step=step,
            micro_batch=micro_batch,
            micro_batch_size=manifest.micro_batch_size,
            micro_batches=manifest.micro_batches,
        )
