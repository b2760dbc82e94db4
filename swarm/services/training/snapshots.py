"""Copies of one stage's state: taken when its coordinator says, kept as blocks (decision 0025)."""

import asyncio
from collections.abc import Mapping

from swarm.data.blocks import Keeps
from swarm.data.tensors import Array, put_tensor
from swarm.ids import Digest
from swarm.services.boundary import job_boundary
from swarm.services.context import Context
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.node_status import Snapshot
from swarm.wire.messages.coordination import StageSnapshot
from swarm.wire.records.plan import Plan
from swarm.wire.records.state import StatePart, StateTensor
from swarm.wire.tensors import DType

State = Mapping[tuple[StatePart, str], tuple[Array, DType]]
"""All that a stage was at a step boundary, by part and the name of the parameter or buffer."""


class Snapshots:
    """Those of stage ``stage`` of ``plan``. What goes wrong here costs a copy, and no step."""

    def __init__(self, job: Job, plan: Plan, stage: int, *, context: Context, blocks: JobBlocks) -> None:
        self._job = job
        self._plan = plan
        self._stage = stage
        self._context = context
        self._blocks = blocks
        self._due: int | None = None
        self.newest: Snapshot | None = None
        """The last that was kept here."""

    def order(self, step: int) -> None:
        """The coordinator wants the state after ``step`` steps."""
        self._due = step

    def is_due(self, step: int) -> bool:
        """Whether the state after ``step`` steps is wanted; asked once at each boundary."""
        due = self._due == step
        if self._due is not None and self._due <= step:
            self._due = None
        return due

    def keep(self, step: int, state: State) -> None:
        """Write ``state`` to the store and tell the coordinator, while the stage goes on."""
        self._context.tasks.create_task(self._keep(step, state), name="keep a snapshot")

    async def _keep(self, step: int, state: State) -> None:
        store = self._blocks.exchange.store

        def put(held: Keeps) -> tuple[StateTensor, ...]:
            tensors = tuple(
                StateTensor(part, put_tensor(held, name, array, dtype))
                for (part, name), (array, dtype) in state.items()
            )
            store.sync(Digest(name) for one in tensors for name in one.tensor.blob.blocks)
            return tensors

        def without(sentence: str) -> None:
            words = f"no snapshot of stage {self._stage + 1} after step {step}: {sentence}"
            self._context.story.tell("trouble", words)

        with job_boundary(self._job.id, without), store.holding() as held:
            tensors = await asyncio.get_running_loop().run_in_executor(None, put, held)
            if self._job.ended or self._job.plan is not self._plan:
                return
            blobs = [one.tensor.blob for one in tensors]
            self._blocks.pin_state(self._job, f"stage {self._stage}", step, blobs)
            self.newest = Snapshot(step=step, bytes=sum(blob.size for blob in blobs))
            snapshot = StageSnapshot(
                job=self._job.id,
                generation=self._plan.generation,
                stage=self._stage,
                step=step,
                tensors=tensors,
            )
            self._context.send(self._job.coordinator, snapshot)
