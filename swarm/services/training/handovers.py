"""Stages on their way from one holder to another while their job trains (decision 0028).

The coordinator proposes a plan that gives one stage to a newcomer. The newcomer loads a copy of it, and makes
the steps since then once more from what the other holders kept of what they sent; everybody else goes on.
"""

from typing import Final

import msgspec

from swarm.errors import FailureError, RemoteProtocolError
from swarm.identity.envelope import PLAN
from swarm.ids import JobId, PeerId, StageIndex, Step, short
from swarm.services.boundary import job_boundary
from swarm.services.context import Buffer, Context, Service
from swarm.services.job import Job
from swarm.services.job_check import check_plan, moved_stage
from swarm.services.jobs import Jobs
from swarm.services.signed import peek, read_signed
from swarm.services.training.held import Held
from swarm.services.training.holder import Holder
from swarm.services.training.pipeline import StagePipeline
from swarm.services.training.sent_log import Kept
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import PlanStart
from swarm.wire.messages.handover import (
    LineCommitted,
    PlanProposal,
    ProposalWithdrawn,
    ReplayMissing,
    ReplayWanted,
    StageWanted,
)
from swarm.wire.records.plan import Plan
from swarm.wire.text import printable

Order = StageWanted | PlanStart | LineCommitted | ProposalWithdrawn

NEAR: Final = 1
"""Steps behind the job at which whoever catches up is near enough for the stage to change hands."""


class HandOvers(Service):
    """The holder's part in them. It comes before the holder, some of whose messages are for these stages."""

    def __init__(self, holder: Holder, *, context: Context, jobs: Jobs) -> None:
        self._holder = holder
        self._context = context
        self._jobs = jobs
        holder.on_loaded = self._loaded

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link ended: nobody catches up without who goes on with the stage."""
        for job in self._jobs.all():
            for held in self._holder.of(job.id):
                if held.donor == peer:
                    self._holder.fail(held, f"peer {short(peer)}, which it is taken over from, {reason}")

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Take a message of this flow; False for any other."""
        del payload
        match message:
            case PlanProposal(plan=envelope):
                return self._proposed(envelope)
            case StageWanted():
                self._wanted(sender, message)
            case PlanStart():
                return self._switched(sender, message)
            case LineCommitted():
                self._committed(sender, message)
            case ProposalWithdrawn():
                self._withdrawn(sender, message)
            case ReplayWanted():
                return self._asked(sender, message)
            case ReplayMissing():
                self._missing(sender, message)
            case _:
                return False
        return True

    def _ordered(self, sender: PeerId, order: Order) -> list[Held]:
        """The stages that an order is for; raises RemoteProtocolError where it is not its coordinator's."""
        job = self._jobs.get(JobId(order.job))
        if job is None or sender != job.coordinator:
            raise RemoteProtocolError("only a job's coordinator gives orders to its holders")
        wanted = order.stage if isinstance(order, StageWanted) else None
        return [held for held in self._holder.of(job.id) if wanted in {None, held.stage}]

    def _wanted(self, sender: PeerId, wanted: StageWanted) -> None:
        for held in self._ordered(sender, wanted):
            if held.pipeline is not None and held.plan.generation == wanted.generation:
                held.pipeline.snapshots.order_copy()

    def _committed(self, sender: PeerId, committed: LineCommitted) -> None:
        for held in self._ordered(sender, committed):
            if held.pipeline is not None:
                held.pipeline.log.trim(committed.step)

    def _withdrawn(self, sender: PeerId, withdrawn: ProposalWithdrawn) -> None:
        for held in self._ordered(sender, withdrawn):
            if held.donor is not None and held.given.generation == withdrawn.generation:
                self._holder.fail(held, "its coordinator leaves it where it is")
            elif held.pipeline is not None:
                held.pipeline.log.begin_copies()

    # The proposed plan.

    def _proposed(self, envelope: bytes) -> bool:
        unproven = peek(envelope, PLAN, Plan)
        job = self._jobs.get(JobId(unproven.job))
        if job is None or job.ended:
            return job is not None
        if job.plan is None or job.plan.generation >= unproven.generation:
            return True
        member, plan = read_signed(envelope, PLAN, Plan, self._context)
        if member.peer != job.coordinator:
            raise RemoteProtocolError("a plan was proposed by somebody who does not coordinate its job")
        check_plan(plan, job.manifest)
        stage = moved_stage(job.plan, plan)
        for held in self._holder.of(job.id):
            if held.stage == stage and held.donor is not None:
                self._holder.fail(held, "it was given to somebody else")
            elif held.pipeline is not None and held.plan.generation == job.plan.generation:
                held.pipeline.propose(plan)
                if held.stage != stage:
                    self._holder.tell_ready(held, plan)
        if plan.stages[stage].holder == self._context.identity.peer:
            donor = PeerId(job.plan.stages[stage].holder)
            self._holder.give(job, plan, [stage], donor)
        return True

    def _switched(self, sender: PeerId, start: PlanStart) -> bool:
        """Whether that was for a stage that others go on with: the next record is to say when it moves."""
        for held in self._ordered(sender, start):
            pipeline = held.pipeline
            plan = pipeline.proposed if pipeline is not None and held.donor is None else None
            if pipeline is None or plan is None or plan.generation != start.generation:
                continue
            if held.stage == pipeline.loaded.role.recorder:
                pipeline.order_switch(start.generation)
                return True
        return False

    # Catching up.

    def _loaded(self, held: Held) -> None:
        """A stage is loaded here; one that somebody else goes on with begins to catch up."""
        pipeline = held.pipeline
        if held.donor is None or pipeline is None:
            return
        told = False

        def want(step: Step) -> None:
            nonlocal told
            self._want(held, step)
            if not told and pipeline.machine.statistics().step >= held.job.step - NEAR:
                told = True
                self._holder.tell_ready(held, held.plan)

        def switched() -> None:
            donor, held.donor = held.donor, None
            words = f"stage {held.stage + 1} of job {short(held.job.id)} is taken over from peer "
            self._context.story.tell("plan", f"{words}{short(donor) if donor else 'another'}")

        pipeline.on_want, pipeline.on_switch = want, switched
        pipeline.start()

    def _want(self, held: Held, step: Step) -> None:
        """Ask who holds another stage, and whoever has this one, for what they sent to it in ``step``."""
        plan = held.given
        others = [PeerId(stage.holder) for index, stage in enumerate(plan.stages) if index != held.stage]
        holders = [held.donor, *others] if held.donor is not None else others
        for peer in dict.fromkeys(holders):
            wanted = ReplayWanted(job=plan.job, generation=plan.generation, stage=held.stage, step=step)
            if not self._context.send(peer, wanted) and held.pipeline is not None:
                lost = f"there is no link to peer {short(peer)}, from which it is to catch up"
                held.pipeline.give_up(FailureError(lost))

    def _asked(self, sender: PeerId, wanted: ReplayWanted) -> bool:
        """Send again, and go on sending, what the stages here sent to the stage that ``sender`` is given."""
        job = self._jobs.get(JobId(wanted.job))
        if job is None:
            return False
        found = [(held, held.pipeline) for held in self._holder.of(job.id) if held.donor is None]
        for held, pipeline in found:
            plan = pipeline.proposed if pipeline is not None else None
            if pipeline is None or plan is None or plan.generation != wanted.generation:
                continue
            if wanted.stage >= len(plan.stages) or plan.stages[wanted.stage].holder != sender:
                raise RemoteProtocolError("a replay was asked for by somebody who is not given the stage")
            if pipeline.log.asked(wanted.stage, wanted.step):
                raise RemoteProtocolError(f"a replay of step {wanted.step} was asked for twice")
            task = self._replay(sender, job, held, pipeline, wanted)
            self._context.tasks.create_task(task, name="replay")
        return True

    async def _replay(
        self, newcomer: PeerId, job: Job, held: Held, pipeline: StagePipeline, wanted: ReplayWanted
    ) -> None:
        target, plan = StageIndex(wanted.stage), pipeline.proposed

        def send(message: Kept, payload: Buffer) -> None:
            if plan is None or message.fence.receiver == plan.stages[target].incarnation:
                return  # it goes there anyway
            ends = (plan.stages[held.stage].incarnation, plan.stages[target].incarnation)
            fence = msgspec.structs.replace(message.fence, sender=ends[0], receiver=ends[1])
            self._context.send(newcomer, msgspec.structs.replace(message, fence=fence), payload)

        def lacks(sentence: str) -> None:
            missing = ReplayMissing(
                job=job.id,
                generation=wanted.generation,
                stage=wanted.stage,
                sentence=printable(sentence),
            )
            self._context.send(newcomer, missing)

        with job_boundary(job.id, lacks):
            await pipeline.log.replay(target, wanted.step, send)

    def _missing(self, sender: PeerId, missing: ReplayMissing) -> None:
        """What is lacking here nobody has any more."""
        for held in self._holder.of(JobId(missing.job)):
            is_it = held.stage == missing.stage and held.given.generation == missing.generation
            if is_it and held.donor is not None:
                self._holder.fail(held, f"peer {short(sender)} says: {missing.sentence}")
