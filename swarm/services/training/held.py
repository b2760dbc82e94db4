"""A stage that is given to this peer: being loaded, at work, or on its way to somebody else."""

import asyncio
from dataclasses import dataclass, field, replace

from swarm.ids import PeerId, StageIndex, short
from swarm.services.context import Context
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.node_status import HeldStage
from swarm.services.status.document import LogStatus
from swarm.services.training.loading import LoadedStage
from swarm.services.training.pipeline import StagePipeline
from swarm.services.training.sent_log import SentLog
from swarm.services.training.snapshots import Snapshots
from swarm.train.device import DeviceThread
from swarm.wire.records.plan import Plan, StagePlan


@dataclass(slots=True)
class Held:
    """One of them. ``given`` is the plan that gave it."""

    job: Job
    given: Plan
    stage: StageIndex
    donor: PeerId | None = None
    """Who goes on with it until this peer has caught up; None where nobody else has it."""
    task: asyncio.Task[None] | None = None
    pipeline: StagePipeline | None = None
    until: int | None = None
    """The first step that somebody else makes; None while nobody else is known to."""
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Somebody else has made that step."""

    @property
    def plan(self) -> Plan:
        """The plan in force for it."""
        return self.given if self.pipeline is None else self.pipeline.plan

    @property
    def planned(self) -> StagePlan:
        """The stage as that says."""
        return self.plan.stages[self.stage]

    @property
    def memory(self) -> int:
        """What is counted for it, in bytes."""
        return self.given.stages[self.stage].memory

    def status(self) -> HeldStage:
        """What this node says of it."""
        known = HeldStage(job=self.job.id, stage=self.stage, memory=self.memory, pipeline=None)
        pipeline = self.pipeline
        if pipeline is None:
            return known
        log = LogStatus(first=pipeline.log.first, memory=pipeline.log.memory, disk=pipeline.log.disk)
        return replace(
            known,
            pipeline=pipeline.machine.statistics(),
            encodings=pipeline.sent(),
            snapshot=pipeline.snapshots.newest,
            log=log,
        )

    def follows(self, plan: Plan) -> bool:
        """Whether it goes on under ``plan``, which it had before anybody was told of it."""
        proposed = self.pipeline.proposed if self.pipeline is not None else None
        return plan.generation in {self.plan.generation, proposed.generation if proposed else None}

    def takes_from(self, sender: PeerId, source: int, incarnation: int, step: int) -> bool:
        """Whether ``sender`` may send as stage ``source`` in ``incarnation``."""
        if self.pipeline is None or source >= len(self.plan.stages):
            return False
        plans = [self.plan, *([self.pipeline.proposed] if self.pipeline.proposed is not None else [])]
        theirs = [plan.stages[source] for plan in plans if plan.stages[source].incarnation == incarnation]
        if self.donor == sender and source == self.stage:
            return not self.pipeline.machine.succession.is_live(step)
        return not theirs or any(stage.holder == sender for stage in theirs)


def pipeline_of(
    held: Held, loaded: LoadedStage, *, context: Context, blocks: JobBlocks, device: DeviceThread
) -> StagePipeline:
    """The loaded stage as it works. Of a job whose state nobody lists nothing is kept for replays."""
    job, plan, store = held.job, held.plan, blocks.exchange.store
    where = f"stage {held.stage + 1} of job {short(job.id)}"
    log = SentLog(
        f"{job.id} stage {held.stage} in plan {plan.generation}",
        job.manifest.steps if job.manifest.export_to else plan.step,
        blocks=store,
        tasks=context.tasks,
        tell=lambda sentence: context.story.tell("trouble", f"{where}: {sentence}"),
    )
    snapshots = Snapshots(job, plan, held.stage, context=context, blocks=blocks)
    return StagePipeline(loaded, context=context, device=device, snapshots=snapshots, log=log)
