"""Copies of one stage's state: taken when its coordinator says, kept as blocks (decision 0025)."""

import asyncio
from collections.abc import Mapping

import msgspec

from swarm.data.blocks import Keeps
from swarm.data.tensors import Array, put_tensor
from swarm.ids import Digest
from swarm.services.boundary import job_boundary
from swarm.services.context import Context
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.node_status import Snapshot
from swarm.wire.codecs import Codecs
from swarm.wire.messages.coordination import StageSnapshot
from swarm.wire.messages.handover import StageCopy
from swarm.wire.records.plan import Plan
from swarm.wire.records.state import StatePart, StateTensor
from swarm.wire.tensors import DType

State = Mapping[tuple[StatePart, str], tuple[Array, DType]]
"""All that a stage was at a step boundary, by part and the name of the parameter or buffer."""


class Snapshots:
    """Those of stage ``stage`` of ``plan``. What goes wrong here costs a copy, and no step."""

    def __init__(self, job: Job, plan: Plan, stage: int, *, context: Context, blocks: JobBlocks) -> None:
        self._job = job
        self.plan = plan
        self._stage = stage
        self._context = context
        self._blocks = blocks
        self._due: int | None = None
        self._wanted = False
        self.newest: Snapshot | None = None
        """The last that was kept here."""

    def order(self, step: int) -> None:
        """The coordinator wants the state after ``step`` steps."""
        self._due = step

    def order_copy(self) -> None:
        """The coordinator wants the state at the next boundary, for whoever is to have the stage."""
        self._wanted = True

    def is_due(self, step: int) -> bool:
        """Whether the state after ``step`` steps is wanted for a line; asked once at each boundary."""
        due = self._due == step
        if self._due is not None and self._due <= step:
            self._due = None
        return due

    def is_wanted(self, step: int) -> bool:
        """Whether it is wanted for somebody else; asked once, too."""
        wanted = self._wanted and step > 0
        self._wanted = self._wanted and not wanted
        return wanted

    def keep(self, step: int, state: State, codecs: tuple[Codecs, Codecs] | None) -> None:
        """Write ``state`` to the store and tell the coordinator, while the stage goes on.

        With ``codecs``, of this step and of the next, it is for whoever is to have the stage.
        """
        self._context.tasks.create_task(self._keep(step, state, codecs), name="keep a snapshot")

    async def _keep(self, step: int, state: State, codecs: tuple[Codecs, Codecs] | None) -> None:
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
            if self._job.ended or self._is_past():
                return
            blobs = [one.tensor.blob for one in tensors]
            of = f"stage {self._stage}" if codecs is None else f"stage {self._stage} for another"
            self._blocks.pin_state(self._job, of, step, blobs)
            snapshot = StageSnapshot(
                job=self._job.id,
                generation=self.plan.generation,
                stage=self._stage,
                step=step,
                tensors=tensors,
            )
            if codecs is None:
                self.newest = Snapshot(step=step, bytes=sum(blob.size for blob in blobs))
            else:
                fields = msgspec.structs.asdict(snapshot)
                snapshot = StageCopy(**fields, codecs=codecs[0], later=codecs[1])
            self._context.send(self._job.coordinator, snapshot)

    def _is_past(self) -> bool:
        """Whether another plan has come in the place of this one."""
        newest = self._job.plan
        return newest is not None and newest.generation > self.plan.generation
