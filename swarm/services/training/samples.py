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
from swarm.wire.messages.pipeline import Phase

AHEAD: Final = 2
"""Steps whose blocks are fetched before they are needed."""


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

    async def read(self, phase: Phase, step: int, micro_batch: int) -> dict[int, Array]:
        """The items of one micro-batch by field, each (micro_batch_size, ...).

        Raises FailureError where blocks cannot be had.
        """
        fields = self._fields[phase]
        if not fields:
            return {}
        reader, chosen = self._readers[phase], self._indices(phase, step, micro_batch)

        def read() -> dict[int, Array] | None:
            found = {field: reader.read(field, chosen) for field in fields}
            return (
                None
                if any(item is None for item in found.values())
                else {field: item for field, item in found.items() if item is not None}
            )

        if phase == "train" and micro_batch == 0:
            self._prefetch(step)
        names = reader.blocks_for(fields, chosen)
        if all(self._blocks.exchange.store.has(name) for name in names):
            found = await asyncio.get_running_loop().run_in_executor(None, read)
            if found is not None:
                return found
        sources = self._blocks.sources(self._job)
        return await self._blocks.exchange.obtain(names, read, sources=sources)

    def _prefetch(self, step: int) -> None:
        manifest, reader = self._job.manifest, self._readers["train"]
        wanted: dict[Digest, None] = {}
        for later in range(step + 1, min(step + 1 + AHEAD, manifest.steps)):
            for micro_batch in range(manifest.micro_batches):
                chosen = self._indices("train", later, micro_batch)
                wanted.update(dict.fromkeys(reader.blocks_for(self._fields["train"], chosen)))
        self._blocks.exchange.prefetch(wanted, sources=self._blocks.sources(self._job))

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
