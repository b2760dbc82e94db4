"""Carries out what the coordination machines decide, for the jobs that name this peer (decision D9)."""

import asyncio
from typing import Final, assert_never

import msgspec

from swarm.errors import CapacityError, FailureError, LocalError, RemoteProtocolError
from swarm.graph.dag import Graph
from swarm.identity.envelope import OUTCOME, PLAN, seal
from swarm.ids import Generation, JobId, PeerId, short
from swarm.protocol.coordination import CoordinationMachine
from swarm.protocol.coordination_events import (
    Action,
    Begin,
    Cancelled,
    Event,
    Failed,
    IssuePlan,
    JobTerms,
    KeepWeights,
    MakePlan,
    OfferArrived,
    PeerLeft,
    PlanImpossible,
    PlanMade,
    ProgressHeard,
    Resources,
    ResultHeard,
    StageLoaded,
    StageLost,
    StartPlan,
    Tell,
    Tick,
    WeightsKept,
)
from swarm.schedule.plan import make_plan
from swarm.schedule.workload import PeerOffer, Workload
from swarm.services.context import Context, Service
from swarm.services.job import Job, end_state
from swarm.services.job_blocks import JobBlocks
from swarm.services.jobs import Jobs
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import (
    Offer,
    PlanIssue,
    PlanStart,
    StageFailed,
    StageReady,
    StageResult,
)
from swarm.wire.messages.jobs import JobFollow, JobNotice, JobProgress
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.manifest import blobs_of
from swarm.wire.records.outcome import Outcome
from swarm.wire.text import printable

PROGRESS_SECONDS: Final = 2.0
"""How often members that do not follow a job hear how far it is."""


class _Running:
    """One job under coordination."""

    def __init__(self, job: Job) -> None:
        manifest = job.manifest
        self.job = job
        self.machine = CoordinationMachine(
            JobTerms(
                job=job.id,
                steps=manifest.steps,
                evaluates=manifest.held_out is not None,
                patience=manifest.patience,
            )
        )
        self.wake = asyncio.Event()
        self.heard: list[JobProgress] = []
        self.followers: set[PeerId] = set()
        self.graphs: asyncio.Future[tuple[Graph, Graph]] = asyncio.get_running_loop().create_future()
        self.told_at = 0.0
        self.issued: PlanIssue | None = None


class Coordinator(Service):
    """Coordinates the jobs whose manifest names this peer first."""

    def __init__(self, context: Context, jobs: Jobs, blocks: JobBlocks) -> None:
        self._context = context
        self._jobs = jobs
        self._blocks = blocks
        self._running: dict[JobId, _Running] = {}
        jobs.on_job.append(self._on_job)
        jobs.on_cancel.append(self._on_cancel)
        jobs.on_forget.append(self._on_forget)

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link ended: its peer holds nothing any more."""
        for running in tuple(self._running.values()):
            running.followers.discard(peer)
            self._feed(running, PeerLeft(peer=peer, reason=reason))

    def on_up(self, peer: PeerId) -> None:
        """A link is up: tell it where the jobs are."""
        for running in self._running.values():
            if running.issued is not None and not running.job.ended:
                self._context.send(peer, running.issued)
        for job in self._jobs.all():
            if job.coordinator == self._context.identity.peer and not job.ended:
                self._context.send(peer, _notice(job))

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Take a message of the coordination flow; False for any other."""
        del payload
        match message:
            case Offer():
                resources = Resources(peer=sender, memory=message.memory, flops=message.flops)
                return self._deliver(message.job, OfferArrived(resources=resources))
            case StageReady():
                generation = Generation(message.generation)
                loaded = StageLoaded(peer=sender, generation=generation, stage=message.stage)
                return self._deliver(message.job, loaded)
            case StageFailed():
                lost = StageLost(
                    peer=sender,
                    generation=Generation(message.generation),
                    stage=message.stage,
                    sentence=message.sentence,
                )
                return self._deliver(message.job, lost)
            case StageResult():
                result = ResultHeard(
                    peer=sender,
                    generation=Generation(message.generation),
                    stage=message.stage,
                    tensors=message.tensors,
                )
                return self._deliver(message.job, result)
            case JobProgress():
                return self._advanced(sender, message)
            case JobFollow():
                return self._followed(sender, message)
            case _:
                return False

    def _deliver(self, job: str, event: Event) -> bool:
        """To the job's machine; a message for a job that is not coordinated here has no effect."""
        running = self._running.get(JobId(job))
        if running is not None:
            self._feed(running, event)
        return True

    def _on_job(self, job: Job) -> None:
        if job.coordinator != self._context.identity.peer or job.ended:
            return
        job.heard = True
        running = self._running[job.id] = _Running(job)
        self._context.tasks.create_task(self._watch(running), name=f"coordinate {short(job.id)}")
        self._context.tasks.create_task(self._replicate(running), name=f"replicate {short(job.id)}")
        self._feed(running, Begin())

    def _on_cancel(self, job: Job) -> None:
        running = self._running.get(job.id)
        if running is not None:
            self._feed(running, Cancelled(sentence=job.sentence))

    def _on_forget(self, job: Job) -> None:
        self._running.pop(job.id, None)
        self._blocks.forget(job)

    async def _watch(self, running: _Running) -> None:
        """Feed the machine its deadlines until the job has ended."""
        while not running.job.ended:
            running.wake.clear()
            deadline = running.machine.deadline
            delay = None if deadline is None else max(0.0, deadline - self._context.clock.elapsed())
            try:
                async with asyncio.timeout(delay):
                    await running.wake.wait()
            except TimeoutError:
                self._feed(running, Tick())

    async def _replicate(self, running: _Running) -> None:
        """Copy every block of the job here, graphs first, so that its author may leave (decision D11)."""
        try:
            running.graphs.set_result(await self._blocks.graphs(running.job))
            await self._blocks.fetch(running.job, blobs_of(running.job.manifest))
        except (FailureError, RemoteProtocolError) as error:
            self._feed(running, Failed(sentence=str(error)))
            return
        running.job.replicas = 1
        self._tell(running)

    def _feed(self, running: _Running, event: Event) -> None:
        if running.job.outcome:
            return
        actions = running.machine.handle(event, now=self._context.clock.elapsed())
        for action in actions:
            self._perform(running, action)
        running.wake.set()

    def _perform(self, running: _Running, action: Action) -> None:
        match action:
            case MakePlan():
                self._context.tasks.create_task(self._plan(running, action), name="plan")
            case IssuePlan(plan=plan):
                envelope = seal(self._context.identity, PLAN, msgspec.msgpack.encode(plan))
                self._context.story.tell("plan", "; ".join(plan.explanation[:1]))
                running.issued = PlanIssue(plan=envelope)
                self._broadcast(running.issued)
            case StartPlan(plan=plan):
                me = short(self._context.identity.peer)
                running.job.will = self._outcome(
                    running, will=f"its coordinator, peer {me}, stopped meanwhile"
                )
                start = PlanStart(job=plan.job, generation=plan.generation)
                for holder in dict.fromkeys(stage.holder for stage in plan.stages):
                    self._context.send(PeerId(holder), start)
            case KeepWeights(tensors=tensors):
                self._context.tasks.create_task(self._keep(running, tensors), name="keep weights")
            case Tell():
                self._tell(running)
            case _:
                assert_never(action)

    async def _plan(self, running: _Running, action: MakePlan) -> None:
        train, evaluate = await asyncio.shield(running.graphs)
        manifest = running.job.manifest
        workload = Workload(
            graph=train,
            evaluation=evaluate,
            optimizer=manifest.optimizer,
            micro_batches=manifest.micro_batches,
        )
        offers = [PeerOffer(peer=o.peer, memory=o.memory, flops=o.flops) for o in action.offers]
        try:
            plan = await asyncio.to_thread(make_plan, running.job.id, workload, offers)
        except CapacityError as error:
            self._feed(running, PlanImpossible(sentence=str(error)))
        except FailureError as error:
            self._feed(running, Failed(sentence=str(error)))
        else:
            self._feed(running, PlanMade(plan=plan))

    async def _keep(self, running: _Running, tensors: tuple[TensorBlob, ...]) -> None:
        try:
            blobs = [tensor.blob for tensor in _complete(running.job, tensors)]
            self._blocks.pin_weights(running.job, blobs)
            await self._blocks.fetch(running.job, blobs)
        except FailureError as error:
            self._feed(running, Failed(sentence=f"the trained weights could not be collected: {error}"))
        else:
            self._feed(running, WeightsKept())

    def _advanced(self, sender: PeerId, progress: JobProgress) -> bool:
        running = self._running.get(JobId(progress.job))
        if running is None:
            return False
        self._feed(running, ProgressHeard(peer=sender, progress=progress))
        running.heard.append(progress)
        running.job.advance(progress, self._context.clock.elapsed())
        self._jobs.changed(running.job)
        for follower in running.followers:
            self._context.send(follower, progress)
        if self._context.clock.elapsed() - running.told_at >= PROGRESS_SECONDS:
            self._tell(running)
        return True

    def _followed(self, sender: PeerId, follow: JobFollow) -> bool:
        running, job = self._running.get(JobId(follow.job)), self._jobs.get(JobId(follow.job))
        if running is not None:
            running.followers.add(sender)
            for progress in running.heard[follow.since :]:
                self._context.send(sender, progress)
        if job is not None and job.coordinator == self._context.identity.peer and not job.ended:
            self._context.send(sender, _notice(job))
        return True

    def _tell(self, running: _Running) -> None:
        """Say where the job stands: a notice while it goes on, a signed outcome at its end."""
        found = running.machine.statistics()
        job, now, wall = running.job, self._context.clock.elapsed(), self._context.clock.wall()
        if job.state != found.state:
            self._context.story.tell("job", f"job {short(job.id)}: {found.state} {found.sentence}".rstrip())
        running.told_at = now
        if end_state(found.state) is not None:
            self._jobs.settle(self._outcome(running), from_peer=self._context.identity.peer)
            return
        job.state, job.sentence, job.step = found.state, found.sentence, found.step
        job.since = wall - (now - found.since)
        job.until = wall + (found.until - now) if found.until else 0.0
        self._broadcast(_notice(job))
        self._jobs.changed(job)

    def _outcome(self, running: _Running, *, will: str = "") -> bytes:
        """How the job ended, signed; with ``will``, how it ends if this program stops before it says more."""
        found, job = running.machine.statistics(), running.job
        state = "failed" if will else end_state(found.state)
        if state is None:
            raise LocalError(f"job {short(job.id)} has not ended")
        outcome = Outcome(
            format=1,
            job=job.id,
            state=state,
            sentence=printable(will or found.sentence),
            wall=self._context.clock.wall(),
            step=found.step,
            held_out=found.held_out,
            weights=_complete(job, running.machine.weights) if state == "done" else (),
        )
        return seal(self._context.identity, OUTCOME, msgspec.msgpack.encode(outcome))

    def _broadcast(self, message: Message) -> None:
        for peer in self._context.peers():
            self._context.send(peer, message)
        self._context.send(self._context.identity.peer, message)


def _notice(job: Job) -> JobNotice:
    """Where a job stands that goes on."""
    match job.state:
        case "waiting" | "loading" | "training" | "finishing":
            return JobNotice(
                job=job.id,
                state=job.state,
                sentence=printable(job.sentence),
                since=job.since,
                until=job.until,
                step=job.step,
                replicas=job.replicas,
            )
        case _:
            raise LocalError(f"job {short(job.id)} has ended: its outcome says more than a notice")


def _complete(job: Job, trained: tuple[TensorBlob, ...]) -> tuple[TensorBlob, ...]:
    """``trained``, and the initial tensors that no stage trains but the author's ``state_dict`` has."""
    names = {tensor.name for tensor in trained}
    wanted = {name for _, name in job.manifest.state} - names
    return (*trained, *(tensor for tensor in job.manifest.tensors if tensor.name in wanted))
