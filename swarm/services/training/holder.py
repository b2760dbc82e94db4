"""The stages this peer holds: offers memory to jobs, loads what plans give it, lets go when a job ends."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from swarm.data.tensors import put_tensors
from swarm.errors import FailureError, RemoteProtocolError
from swarm.ids import JobId, PeerId, StageIndex, short
from swarm.protocol.pipeline_events import HandedOver
from swarm.protocol.stalls import LOADING_SECONDS, SLOWEST_RATE
from swarm.schedule.units import format_bytes
from swarm.services.boundary import job_boundary
from swarm.services.context import Context, Service
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.jobs import Jobs
from swarm.services.node_status import HeldStage
from swarm.services.training.gift import HolderConfig
from swarm.services.training.held import Held, pipeline_of
from swarm.services.training.loading import load_stage
from swarm.services.training.pausing import PAUSED, Pausing
from swarm.services.training.pipeline import Data, StagePipeline
from swarm.train.device import DeviceThread
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import (
    LimitedOffer,
    Offer,
    PlanStart,
    SnapshotDue,
    StageFailed,
    StageReady,
    StageResult,
)
from swarm.wire.messages.pipeline import (
    BoundaryTensor,
    FenceRefused,
    SharedTensor,
    StageReport,
    StepRecord,
)
from swarm.wire.records.manifest import blobs_of
from swarm.wire.records.plan import Plan
from swarm.wire.text import printable

Place = tuple[JobId, StageIndex]

NEIGHBOUR_SECONDS: Final = 3.0
"""How long the coordinator has to notice a departure before a stage reports its own lost link."""

MAX_STAGES_HERE: Final = 16
"""Stages of one job that a peer holds at most; they need not be adjacent, but each costs a boundary."""

LOWERED: Final = 0.75
"""What is left of a peer's offer each time that its device has no memory for a stage."""


class Holder(Service):
    """Holds stages. Offers what memory is left to every job it accepts."""

    def __init__(
        self, config: HolderConfig, *, context: Context, jobs: Jobs, blocks: JobBlocks, device: DeviceThread
    ) -> None:
        self.config = config
        self.flops = 0.0
        """Operations a second, as measured on the device; set before links come up."""
        self.lacks: tuple[str, ...] = ()
        """Operators and data types that cannot run here; set before links come up."""
        self._context = context
        self._jobs = jobs
        self._blocks = blocks
        self._device = device
        self.pausing = Pausing(context, jobs, self._offer)
        self._held: dict[Place, Held] = {}
        self.on_loaded: Callable[[Held], object] = lambda _: None
        """Hears of a stage that is loaded, before it begins."""
        self._memory = config.memory
        """Bytes that it offers; less than it was told to where the device turned out not to have them."""
        jobs.on_job.append(self._offer)
        jobs.on_change.append(self._changed)
        jobs.on_plan.append(self._planned)

    def stages(self) -> tuple[HeldStage, ...]:
        """The stages it holds."""
        return tuple(held.status() for _, held in sorted(self._held.items()))

    def of(self, job: JobId) -> list[Held]:
        """Those of one job."""
        return [held for (of, _), held in self._held.items() if of == job]

    # Links and messages.

    def on_up(self, peer: PeerId) -> None:
        """A link is up: offer memory to the jobs that it coordinates."""
        for job in self._jobs.all():
            if job.coordinator == peer:
                self._offer(job)

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link ended: stages that work with that peer, or for it, cannot go on."""
        for job in self._jobs.all():
            if job.coordinator == peer and self._drop(job.id):
                self._offer_others(job)
        for (_, stage), held in tuple(self._held.items()):
            theirs = [i + 1 for i, planned in enumerate(held.plan.stages) if planned.holder == peer]
            gives = held.until is not None
            if theirs and held.pipeline is not None and held.job.state == "training" and not gives:
                where = ", ".join(map(str, theirs))
                lost = f"its link to peer {short(peer)} is lost (it {reason}), and with it stage {where}"
                self._context.tasks.create_task(self._miss(held, stage, lost), name="miss a neighbour")

    async def _miss(self, held: Held, stage: StageIndex, lost: str) -> None:
        """A neighbour is gone from here; the coordinator, where it is gone from there too, ends the job."""
        await asyncio.sleep(NEIGHBOUR_SECONDS)
        if self._held.get((held.job.id, stage)) is held:
            self.fail(held, lost)

    def offer(self, sender: PeerId, message: Message, size: int) -> str | None:
        """Whether a training payload is wanted: empty, or why not. Asked before it is received.

        Raises RemoteProtocolError for one that no stage of its plan would send: nothing else would come in
        its place.
        """
        if not isinstance(message, BoundaryTensor | SharedTensor):
            return None
        pipeline = self._pipeline(sender, message)
        if pipeline is None:
            return "that stage is not held here"
        try:
            pipeline.machine.arrivals.check(message)
        except RemoteProtocolError as error:
            return str(error)
        pipeline.check(message, size)
        return ""

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Take a message for the stages here; False for any other."""
        match message:
            case BoundaryTensor() | SharedTensor() | StageReport() | StepRecord():
                pipeline = self._pipeline(sender, message)
                if pipeline is None:
                    return False
                pipeline.take(sender, message, payload)
            case PlanStart():
                for pipeline in self._ordered(sender, message):
                    pipeline.start()
            case SnapshotDue():
                for pipeline in self._ordered(sender, message):
                    pipeline.snapshots.order(message.step)
            case FenceRefused(fence=fence):  # the plan has changed; only who has a part in it may refuse
                held = self._held.get((JobId(fence.job), StageIndex(fence.source)))
                return held is not None and any(sender == stage.holder for stage in held.plan.stages)
            case _:
                return False
        return True

    def _pipeline(self, sender: PeerId, message: Data) -> StagePipeline | None:
        """The stage that a data message is for; raises where its sender does not hold the stage it names.

        Who held that stage in another incarnation is told so (``FenceRefused``), and nothing is kept of it.
        """
        fence = message.fence
        held = self._held.get((JobId(fence.job), StageIndex(fence.target)))
        if held is None or held.pipeline is None:
            return None
        if not held.takes_from(sender, fence.source, fence.sender, fence.step):
            raise RemoteProtocolError(f"peer {short(sender)} does not hold stage {fence.source + 1}")
        return held.pipeline

    # Offers and plans.

    def _offer(self, job: Job) -> None:
        if job.ended or not self.config.takes(job):
            return
        offer = Offer(job=job.id, memory=self._free(beside=job.id), flops=self.flops, holding=False)
        if self.lacks:
            offer = LimitedOffer(**msgspec.structs.asdict(offer), lacks=self.lacks)
        self._context.send(job.coordinator, offer)

    def _free(self, *, beside: JobId | None = None) -> int:
        """Bytes that are left, also of what the stages of the job ``beside`` have; none while paused."""
        taken = sum(held.memory for (job, _), held in self._held.items() if job != beside)
        return max(self._memory - taken, 0) if self.pausing.since is None else 0

    def _planned(self, job: Job, plan: Plan) -> None:
        if any(held.follows(plan) for held in self.of(job.id)):
            return
        self._drop(job.id)
        me = self._context.identity.peer
        mine = [StageIndex(i) for i, stage in enumerate(plan.stages) if stage.holder == me]
        if mine:
            self.give(job, plan, mine)

    def give(self, job: Job, plan: Plan, stages: Sequence[StageIndex], donor: PeerId | None = None) -> None:
        """Take these stages of ``plan``, or say why not; from ``donor``, where it goes on with them."""
        unfit = self._unfit(job, [plan.stages[index].memory for index in stages])
        if unfit:
            generation, sentence = plan.generation, printable(unfit)
            self._context.story.tell("refused", f"a plan for job {short(job.id)}: {unfit}")
            failed = StageFailed(job=job.id, generation=generation, stage=stages[0], sentence=sentence)
            self._context.send(job.coordinator, failed)
            return
        for index in stages:
            self._hold(Held(job=job, given=plan, stage=index, donor=donor))
        self._offer_others(job)

    def _unfit(self, job: Job, memory: Sequence[int]) -> str:
        """Why this peer does not take stages of so many bytes, whatever its offers were; empty if it does."""
        if self.pausing.since is not None:
            return PAUSED
        if not self.config.takes(job):
            return "this peer gives itself to other jobs"
        if len(memory) > MAX_STAGES_HERE:
            return f"{len(memory)} stages are more than one peer takes of a job ({MAX_STAGES_HERE})"
        if sum(memory) > self._free():
            return f"{format_bytes(sum(memory))} are more than the {format_bytes(self._free())} left here"
        return ""

    def _hold(self, held: Held) -> None:
        job, index = held.job, held.stage
        self._held[job.id, index] = held
        words = f"loading stage {index + 1} of {len(held.plan.stages)} of job {short(job.id)}"
        self._context.story.tell("plan", words)
        held.task = self._context.tasks.create_task(self._carry(held, index), name=f"stage {index}")

    async def _carry(self, held: Held, index: StageIndex) -> None:
        """Load a stage, say so, and do its work until the last step, or until somebody else does it."""
        with job_boundary(held.job.id, partial(self.fail, held)):
            loaded = await load_stage(
                held.job,
                held.plan,
                index,
                blocks=self._blocks,
                device=self._device,
                catches_up=held.donor is not None,
            )
            short_of_memory = partial(self._short_of_memory, held, index)
            tell = partial(asyncio.get_running_loop().call_soon_threadsafe, short_of_memory)
            loaded.executor.redoing.on_redo = tell
            held.pipeline = pipeline_of(
                held, loaded, context=self._context, blocks=self._blocks, device=self._device
            )
            self.on_loaded(held)
            if held.donor is None:
                self.tell_ready(held, held.plan)
            await _started(held.pipeline, _start_seconds(held.job))
            ended = await held.pipeline.run()
            if isinstance(ended, HandedOver):
                held.until = ended.step
                await held.gone.wait()
                self._let_go(held)
            else:
                await self._return(held, held.pipeline)

    def tell_ready(self, held: Held, plan: Plan) -> None:
        """Tell the coordinator that the stage is ready for ``plan``."""
        ready = StageReady(job=held.job.id, generation=plan.generation, stage=held.stage)
        self._context.send(held.job.coordinator, ready)

    def _let_go(self, held: Held) -> None:
        """Somebody else has the stage."""
        who = held.pipeline.proposed if held.pipeline is not None else None
        other = f"peer {short(PeerId(who.stages[held.stage].holder))}" if who is not None else "another peer"
        self._release((held.job.id, held.stage))
        words = f"stage {held.stage + 1} of job {short(held.job.id)} is in the hands of {other}"
        self._context.story.tell("plan", f"{words} from step {held.until} on")
        self._offer_others(held.job)

    def _short_of_memory(self, held: Held, index: StageIndex, sentence: str) -> None:
        """The device had no memory for a stage, whose work is done again: offer less from now on."""
        self._memory = int(self._memory * LOWERED)
        words = f"{sentence}; it is done again, and this peer offers {format_bytes(self._memory)} from now on"
        self._context.story.tell("trouble", f"stage {index + 1} of job {short(held.job.id)}: {words}")
        self._offer(held.job)
        self._offer_others(held.job)

    def _ordered(self, sender: PeerId, order: PlanStart | SnapshotDue) -> list[StagePipeline]:
        """The stages that an order is for; raises RemoteProtocolError where it is not its coordinator's."""
        job = self._jobs.get(JobId(order.job))
        if job is None or sender != job.coordinator:
            raise RemoteProtocolError("only a job's coordinator gives orders to its holders")
        return [
            held.pipeline
            for held in self._held.values()
            if held.job is job and held.plan.generation == order.generation and held.pipeline is not None
        ]

    # Ends.

    async def _return(self, held: Held, pipeline: StagePipeline) -> None:
        """The last step is done: keep the trained tensors as blocks, and tell the coordinator which."""
        trained = await self._device.run(pipeline.work.trained)
        store, run = self._blocks.exchange.store, asyncio.get_running_loop().run_in_executor
        with store.holding() as kept:
            tensors = await run(None, put_tensors, kept, trained)
            self._blocks.pin_weights(held.job, [tensor.blob for tensor in tensors])
        result = StageResult(
            job=held.job.id, generation=held.plan.generation, stage=pipeline.stage, tensors=tensors
        )
        self._context.send(held.job.coordinator, result)

    def end_job(self, job: JobId, sentence: str) -> None:
        """The work for a job went wrong here: give up its stages."""
        for held in self.of(job):
            self.fail(held, sentence)

    def fail(self, held: Held, sentence: str) -> None:
        """Let go of a stage, tell its coordinator why, and offer the memory to the others."""
        index = held.stage
        if self._held.get((held.job.id, index)) is not held:
            return
        self._release((held.job.id, index))
        self._context.story.tell("trouble", f"stage {index + 1} of job {short(held.job.id)}: {sentence}")
        failed = StageFailed(
            job=held.job.id, generation=held.plan.generation, stage=index, sentence=printable(sentence)
        )
        self._context.send(held.job.coordinator, failed)
        self._offer_others(held.job)

    def _offer_others(self, job: Job) -> None:
        """The memory that is left has changed, for a reason that ``job`` knows."""
        for other in self._jobs.all():
            if other is not job:
                self._offer(other)

    def _changed(self, job: Job) -> None:
        for held in self.of(job.id):
            if held.until is not None and job.step > held.until:
                held.gone.set()
        if job.state == "waiting" and self._has_started(job):  # it goes back: another plan comes
            self._drop(job.id)
            self._offer_others(job)
        if not job.ended:
            return
        dropped = self._drop(job.id)
        if dropped:
            self._offer_others(job)
        self._blocks.release(job)
        if dropped and job.state == "done" and self._is_second_keeper(job):
            self._context.tasks.create_task(self._keep_weights(job), name="keep weights")

    def _has_started(self, job: Job) -> bool:
        """Whether stages of a plan that was begun are held here."""
        pipelines = [held.pipeline for held in self._held.values() if held.job is job]
        return any(pipeline is not None and pipeline.started.is_set() for pipeline in pipelines)

    def _is_second_keeper(self, job: Job) -> bool:
        """Whether this peer is to keep all trained weights beside the coordinator: the first other holder."""
        holders = [stage.holder for stage in job.plan.stages] if job.plan is not None else []
        others = [holder for holder in holders if holder != job.coordinator]
        return others[:1] == [self._context.identity.peer] and self._blocks.may_export(job)

    async def _keep_weights(self, job: Job) -> None:
        blobs = [tensor.blob for tensor in job.weights]

        def without(sentence: str) -> None:
            self._context.story.tell("trouble", f"no copy of the weights of job {short(job.id)}: {sentence}")

        self._blocks.pin_weights(job, blobs)
        try:
            with job_boundary(job.id, without):
                await self._blocks.fetch(job, blobs)
                self._context.story.tell("job", f"a copy of the weights of job {short(job.id)} is here")
        finally:
            self._blocks.release(job)

    def _drop(self, job: JobId) -> int:
        """Let go of every stage of a job; returns how many there were."""
        places = [place for place in self._held if place[0] == job]
        for place in places:
            self._release(place)
        return len(places)

    def _release(self, place: Place) -> None:
        held = self._held.pop(place)
        if held.pipeline is not None:
            held.pipeline.log.close()
        if held.task is not None and held.task is not asyncio.current_task():
            held.task.cancel()
        self.pausing.let_go()


async def _started(pipeline: StagePipeline, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await pipeline.started.wait()
    except TimeoutError:
        raise FailureError(f"its coordinator did not start the job within {seconds:.0f} s") from None


def _start_seconds(job: Job) -> float:
    """How long memory is kept for a job that does not start: twice what the other stages may take to load."""
    total = sum(blob.size for blob in blobs_of(job.manifest))
    return 2.0 * (LOADING_SECONDS + total / SLOWEST_RATE)
