"""Publishing a job: capture, blocks, a coordinator, the signed manifest (decisions D4, D9, D11)."""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from msgspec.structs import replace

from swarm.data.blobs import put_graph
from swarm.data.blocks import Keeps
from swarm.data.dataset import describe, prepare
from swarm.data.tensors import Array, put_tensor
from swarm.errors import FailureError
from swarm.ids import Digest, PeerId
from swarm.schedule.units import format_bytes
from swarm.services.context import Service, Services
from swarm.services.job import Job
from swarm.services.training.arrays import to_array
from swarm.services.training.listing import require_listable
from swarm.train.job import CapturedJob, TrainingJob, capture_job, prepare_samples
from swarm.train.rehearsal import rehearse, require_repeatable
from swarm.train.transforms import Draw, for_evaluation, micro_batch
from swarm.wire.codecs import parse_policy
from swarm.wire.records.manifest import Manifest, blobs_of

PIN: Final = "author"
"""Under this name the author's blocks are kept until its program ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedJob:
    """A job that can be published: captured, its samples read."""

    job: TrainingJob
    captured: CapturedJob
    samples: Sequence[Array]
    held_out: Sequence[Array] | None


def prepare_job(job: TrainingJob) -> PreparedJob:
    """Capture ``job``, read its samples, and try it with the first of them; takes seconds, and torch.

    Raises CaptureError, MisuseError or FailureError, in one line, where the job cannot be published.
    """
    captured = capture_job(job)
    require_listable(captured, averages=job.ema > 0)
    held_out = None if job.held_out is None else prepare_samples(job.held_out, "held-out set")
    samples = prepare_samples(job.dataset)
    draw = Draw(seed=job.seed, step=0, samples=np.arange(job.micro_batch_size))
    first = micro_batch(samples, job.transforms_in_order(), draw)
    rehearse(captured, [torch.from_numpy(items) for items in first])
    require_repeatable(job, captured, first)
    return PreparedJob(job=job, captured=captured, samples=samples, held_out=held_out)


class Author(Service):
    """Publishes this peer's jobs, and gives their blocks to whoever needs them."""

    def __init__(self, services: Services) -> None:
        self._context = services.context
        self._jobs = services.jobs
        self._blocks = services.blocks
        self._came = asyncio.Event()

    def on_up(self, peer: PeerId) -> None:
        """Somebody is there: perhaps a coordinator."""
        self._came.set()

    async def publish(self, prepared: PreparedJob, *, patience: float) -> Job:
        """Put the job's blocks into the store, find it a coordinator, and announce it.

        ``patience`` is how many seconds the job, and this call, wait for peers; 0 waits for ever. Raises
        FailureError where no peer that offers memory comes, or the store is too small.
        """
        loop = asyncio.get_running_loop()
        coordinator = await self._find_coordinator(patience)
        store = self._blocks.exchange.store
        with store.holding() as held:
            make = partial(self._manifest, prepared, coordinator, patience, held)
            manifest = await loop.run_in_executor(None, make)
            blobs = blobs_of(manifest)
            store.pin(PIN, (Digest(name) for blob in blobs for name in blob.blocks))
        total = sum(blob.size for blob in blobs)
        self._tell_what_is_left_out(prepared)
        self._context.story.tell(
            "job", f"publishing {manifest.name}: {describe(manifest.dataset)}; {format_bytes(total)} in all"
        )
        return self._jobs.publish(manifest)

    def _tell_what_is_left_out(self, prepared: PreparedJob) -> None:
        """Graphs have static shapes: what is left of the held-out set after whole micro-batches is out."""
        size = prepared.job.micro_batch_size
        count = 0 if prepared.held_out is None else len(prepared.held_out[0])
        if count % size:
            self._context.story.tell(
                "job",
                f"the held-out loss is that of {count - count % size} of the {count} held-out samples: "
                f"micro-batches of {size} are evaluated whole",
            )

    async def _find_coordinator(self, patience: float) -> PeerId:
        """Any peer that offers memory, by lot.

        How much it claims plays no part: a claim may lower what a peer is given, never raise it (decision
        D6), and whoever coordinates can hold up the job. Nobody can arrange for the lot to fall on it.
        """
        try:
            async with asyncio.timeout(patience or None):
                while True:
                    self._came.clear()
                    offering = [
                        peer
                        for peer, link in self._context.links.items()
                        if link.hello.role == "peer" and link.hello.capabilities.memory > 0
                    ]
                    if offering:
                        return secrets.choice(offering)
                    self._context.story.tell("job", "waiting for a peer that offers memory")
                    await self._came.wait()
        except TimeoutError:
            raise FailureError(
                f"after {patience:.0f} s: no peer that offers memory is in the swarm: "
                "start one with swarm peer"
            ) from None

    def _manifest(
        self, prepared: PreparedJob, coordinator: PeerId, patience: float, store: Keeps
    ) -> Manifest:
        """In the executor: everything becomes blocks."""
        job, captured = prepared.job, prepared.captured
        transforms = job.transforms_in_order()
        tensors = []
        for name, tensor in captured.tensors.items():
            array, dtype = to_array(tensor)
            tensors.append(put_tensor(store, name, array, dtype))
        return Manifest(
            format=1,
            swarm=self._context.identity.swarm,
            name=job.name,
            created=self._context.clock.wall(),
            graph=put_graph(store, captured.train),
            evaluation=put_graph(store, captured.evaluate),
            tensors=tuple(tensors),
            state=tuple(captured.state_dict.items()),
            dataset=replace(prepare(prepared.samples, store), transforms=transforms),
            held_out=None
            if prepared.held_out is None
            else replace(prepare(prepared.held_out, store), transforms=for_evaluation(transforms)),
            optimizer=job.optimizer_spec(),
            micro_batch_size=job.micro_batch_size,
            micro_batches=job.micro_batches,
            steps=job.steps,
            seed=job.seed,
            tokens_per_sample=int(np.prod(prepared.samples[-1].shape[1:], dtype=np.int64)) or 1,
            council=(coordinator,),
            patience=patience,
            frozen=captured.frozen(),
            precision=job.precision,
            validate_every=job.validate_every,
            validate_batches=job.validate_batches,
            export_to=tuple(job.export_to),
            policy=parse_policy(job.policy),
        )
