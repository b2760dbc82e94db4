"""Carries out what the coordination machines decide, for the jobs that name this peer (decision D9)."""

import asyncio
import math
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import Final

import msgspec

from swarm.errors import CapacityError, LinkLostError, LocalError, RemoteProtocolError
from swarm.identity.envelope import OUTCOME, PLAN, seal
from swarm.ids import JobId, PeerId, short
from swarm.protocol.coordination_events import (
    Action,
    Begin,
    Cancelled,
    CommitLine,
    Event,
    Failed,
    IssuePlan,
    KeepLine,
    KeepWeights,
    LineKept,
    LineLost,
    MakePlan,
    OrderSnapshot,
    PeerLeft,
    PlanImpossible,
    ProgressHeard,
    Record,
    StartPlan,
    Tell,
    TellPlan,
    Tick,
    WeightsKept,
)
from swarm.protocol.lines import Line
from swarm.services.boundary import job_boundary, job_of
from swarm.services.context import Context, Service
from swarm.services.coordinated import (
    Coordinated,
    complete_weights,
    event_of,
    hand_over_event,
    made_plan,
    notice_of,
)
from swarm.services.job import EndState, Job, end_state
from swarm.services.job_blocks import JobBlocks
from swarm.services.jobs import Jobs
from swarm.services.lines import LineBook
from swarm.services.proposals import Proposals, holders_of
from swarm.wire.limits import MAX_SENTENCE_LENGTH
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import (
    PlanIssue,
    PlanStart,
    SnapshotDue,
)
from swarm.wire.messages.handover import LineCommitted
from swarm.wire.messages.jobs import JobFollow, JobProgress
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.manifest import blobs_of
from swarm.wire.records.outcome import Outcome
from swarm.wire.records.plan import Plan
from swarm.wire.text import printable

PROGRESS_SECONDS: Final = 2.0
"""How often members that do not follow a job hear how far it is."""

WATCH_SECONDS: Final = 3600.0
"""The longest wait for a deadline in one go: a patience of years is more than an event loop can count."""

CATCH_UP: Final = 256
"""Records that are sent at once to somebody who begins to follow a job."""


class Coordinator(Service):
    """Coordinates the jobs whose manifest names this peer first.

    ``coordinates`` is False on nodes that are there for something else: authors choose among peers, and what
    others say to such a node as the coordinator of a job that names it has no effect.
    """

    def __init__(
        self, context: Context, jobs: Jobs, blocks: JobBlocks, lines: LineBook, *, coordinates: bool
    ) -> None:
        self._context = context
        self._jobs = jobs
        self._blocks = blocks
        self._lines = lines
        self._coordinates = coordinates
        self._running: dict[JobId, Coordinated] = {}
        self._proposals = Proposals(context, blocks, lines, feed=self._feed, boundary=self._boundary)
        jobs.on_job.append(self._on_job)
        jobs.on_cancel.append(self._on_cancel)
        jobs.on_forget.append(self._on_forget)

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link ended: its peer holds nothing any more."""
        for running in tuple(self._running.values()):
            running.followers.discard(peer)
            catching_up = running.catching_up.pop(peer, None)
            if catching_up is not None:
                catching_up.cancel()
            self._feed(running, PeerLeft(peer=peer, reason=reason))

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Take a message of the coordination flow; False for any other."""
        del payload
        event = hand_over_event(sender, message) or event_of(sender, message)
        job = job_of(message)
        if event is not None and job is not None:
            return self._deliver(job, event)
        match message:
            case JobProgress():
                return self._advanced(sender, message)
            case JobFollow():
                return self._followed(sender, message)
            case _:
                return False

    def _deliver(self, job: JobId, event: Event) -> bool:
        """To the job's machine; nobody here takes a message for a job that is not coordinated here."""
        running = self._running.get(job)
        if running is None:
            return False
        self._feed(running, event)
        return True

    def _on_job(self, job: Job) -> None:
        if not self._coordinates or job.coordinator != self._context.identity.peer or job.ended:
            return
        job.heard, job.kept = True, 0
        running = self._running[job.id] = Coordinated(job)
        self._context.tasks.create_task(self._watch(running), name=f"coordinate {short(job.id)}")
        self._context.tasks.create_task(self._replicate(running), name=f"replicate {short(job.id)}")
        if self._lines.has(job):
            self._context.tasks.create_task(self._resume(running), name=f"resume {short(job.id)}")
        else:
            running.begun.set()
            self._feed(running, Begin())

    async def _resume(self, running: Coordinated) -> None:
        """Go on from what an earlier run of this node has kept of a job."""
        job = running.job
        try:
            with self._boundary(running):
                begin = await self._lines.resume(job, running.machine.terms)
                running.heard += begin.records
                job.catch_up(begin.records, self._context.clock.elapsed())
                job.kept = begin.line.step
                self._feed(running, begin)
        finally:
            running.begun.set()

    def _on_cancel(self, job: Job) -> None:
        running = self._running.get(job.id)
        if running is not None:
            self._feed(running, Cancelled(sentence=job.sentence))

    def _on_forget(self, job: Job) -> None:
        self._running.pop(job.id, None)
        self._blocks.forget(job)

    async def _watch(self, running: Coordinated) -> None:
        """Feed the machine its deadlines until the job has ended."""
        while not running.job.ended:
            running.wake.clear()
            deadline = running.machine.deadline
            delay = None if deadline is None else max(0.0, deadline - self._context.clock.elapsed())
            try:
                async with asyncio.timeout(None if delay is None else min(delay, WATCH_SECONDS)):
                    await running.wake.wait()
            except TimeoutError:
                self._feed(running, Tick())

    async def _replicate(self, running: Coordinated) -> None:
        """Copy every block of the job here, graphs first, so that its author may leave (decision D11)."""
        try:
            with self._boundary(running):
                running.graphs.set_result(await self._blocks.graphs(running.job))
                await self._blocks.fetch(running.job, blobs_of(running.job.manifest))
                running.job.replicas = 1
                self._tell(running)
        finally:
            running.graphs.cancel()  # where there are none, nobody is to wait for them

    def end_job(self, job: JobId, sentence: str) -> None:
        """The work for a job went wrong here: it has failed, for everybody."""
        running = self._running.get(job)
        if running is not None:
            self._feed(running, Failed(sentence=sentence))

    def _boundary(
        self, running: Coordinated, what: str = "", *, passes: tuple[type[Exception], ...] = ()
    ) -> AbstractContextManager[None]:
        """Around all that is done for a job; ``what`` goes before the sentence of its failure."""

        def fail(sentence: str) -> None:
            self.end_job(running.job.id, printable(what + sentence))

        return job_boundary(running.job.id, fail, passes=passes)

    def _feed(self, running: Coordinated, event: Event) -> None:
        """To the machine, and do what it says. Raises RemoteProtocolError for what a sender may not send."""
        if running.job.outcome:
            return
        with self._boundary(running, passes=(RemoteProtocolError,)):
            for action in running.machine.handle(event, now=self._context.clock.elapsed()):
                self._perform(running, action)
        running.wake.set()

    def _perform(self, running: Coordinated, action: Action) -> None:
        match action:
            case MakePlan():
                self._context.tasks.create_task(self._plan(running, action), name="plan")
            case IssuePlan(plan=plan):
                self._context.tasks.create_task(self._issue(running, plan), name="issue a plan")
            case StartPlan() | OrderSnapshot() | CommitLine():
                self._order(action)
            case KeepLine(line=line):
                self._context.tasks.create_task(self._keep_line(running, line), name="keep a line")
            case TellPlan(plan=plan):
                self._tell_plan(running, plan, running.proposed)
            case Record(progress=progress):
                self._record(running, progress)
            case KeepWeights(tensors=tensors):
                self._context.tasks.create_task(self._keep(running, tensors), name="keep weights")
            case Tell():
                self._tell(running)
            case _:
                self._proposals.perform(running, action)

    def _order(self, action: StartPlan | OrderSnapshot | CommitLine) -> None:
        """Tell all holders of a plan."""
        job, generation = action.plan.job, action.plan.generation
        order: PlanStart | SnapshotDue | LineCommitted
        match action:
            case StartPlan():
                order = PlanStart(job=job, generation=generation)
            case OrderSnapshot(step=step):
                order = SnapshotDue(job=job, generation=generation, step=step)
            case CommitLine(step=step):
                order = LineCommitted(job=job, generation=generation, step=step)
        for holder in holders_of(action.plan):
            self._context.send(holder, order)

    async def _plan(self, running: Coordinated, action: MakePlan) -> None:
        with self._boundary(running):
            graphs = await asyncio.shield(running.graphs)
            try:
                made = await asyncio.to_thread(made_plan, running.job, graphs, action)
                made = replace(made, plan=await self._blocks.begun_at(running.job, made.plan, action.line))
            except CapacityError as error:
                self._feed(running, PlanImpossible(sentence=str(error)))
            else:
                self._feed(running, made)

    async def _issue(self, running: Coordinated, plan: Plan) -> None:
        with self._boundary(running):
            await self._lines.keep_generation(running.job, plan.generation)
            envelope = seal(self._context.identity, PLAN, msgspec.msgpack.encode(plan))
            self._tell_plan(running, plan, envelope)

    def _tell_plan(self, running: Coordinated, plan: Plan, envelope: bytes) -> None:
        self._context.story.tell("plan", "; ".join(plan.explanation[:1]))
        running.issued = PlanIssue(plan=envelope)
        self._broadcast(running.issued)

    async def _keep_line(self, running: Coordinated, line: Line) -> None:
        """Copy a line's blocks here. Where that does not work, the one before stays."""
        job = running.job

        def without(sentence: str) -> None:
            words = f"job {short(job.id)} could not be kept as it was after step {line.step}: {sentence}"
            self._context.story.tell("trouble", words)
            self._feed(running, LineLost())

        if job.ended:
            return
        tensors = [one.tensor.blob for one in line.tensors]
        with job_boundary(job.id, without):
            async with self._blocks.fetched(job, "line", line.step, tensors, gentle=True):
                await self._lines.keep(job, line, tuple(running.heard))
            self._feed(running, LineKept(line=line))
            job.kept = line.step
            self._jobs.changed(job)

    async def _keep(self, running: Coordinated, tensors: tuple[TensorBlob, ...]) -> None:
        with self._boundary(running, "the trained weights could not be collected: "):
            blobs = [tensor.blob for tensor in complete_weights(running.job, tensors)]
            self._blocks.pin_weights(running.job, blobs)
            await self._blocks.fetch(running.job, blobs)
            self._seal(running, state="done", sentence="." * MAX_SENTENCE_LENGTH)  # raises if it is too long
            self._feed(running, WeightsKept())

    def _advanced(self, sender: PeerId, progress: JobProgress) -> bool:
        running = self._running.get(JobId(progress.job))
        if running is None or running.job.ended:
            return False
        self._feed(running, ProgressHeard(peer=sender, progress=progress))
        return True

    def _record(self, running: Coordinated, progress: JobProgress) -> None:
        """A step is settled: remember it, and tell those who follow the job."""
        running.heard.append(progress)
        running.job.advance(progress, self._context.clock.elapsed())
        self._jobs.changed(running.job)
        for follower in running.followers:
            self._context.send(follower, progress)
        if self._context.clock.elapsed() - running.told_at >= PROGRESS_SECONDS:
            self._tell(running)

    def _followed(self, sender: PeerId, follow: JobFollow) -> bool:
        """Somebody wants to hear of a job: of what has been, once while its link is up, and of what comes."""
        running = self._running.get(JobId(follow.job))
        if running is None or running.job.ended or sender in running.catching_up.keys() | running.followers:
            return False
        if running.issued is not None:
            self._context.send(sender, running.issued)
        self._context.send(sender, notice_of(running.job))
        catch_up = self._catch_up(running, sender, follow.since)
        task = self._context.tasks.create_task(catch_up, name=f"catch up {short(sender)}")
        running.catching_up[sender] = task
        return True

    async def _catch_up(self, running: Coordinated, peer: PeerId, since: int) -> None:
        """Send what was heard, no faster than it is taken; whoever has all of it follows from then on."""
        await running.begun.wait()
        with suppress(LinkLostError):
            while since < len(running.heard):
                link = self._context.links.get(peer)
                if link is None:
                    return
                sendings = [link.post(progress) for progress in running.heard[since : since + CATCH_UP]]
                since += len(sendings)
                await sendings[-1].wait()
            running.catching_up.pop(peer, None)
            running.followers.add(peer)

    def _tell(self, running: Coordinated) -> None:
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
        job.since = max(wall - (now - found.since), 0.0)
        job.until = wall + (found.until - now) if found.until else 0.0
        self._broadcast(notice_of(job))
        self._jobs.changed(job)

    def _outcome(self, running: Coordinated) -> bytes:
        """How the job ended, signed."""
        found = running.machine.statistics()
        state = end_state(found.state)
        if state is None:
            raise LocalError(f"job {short(running.job.id)} has not ended")
        return self._seal(running, state=state, sentence=found.sentence)

    def _seal(self, running: Coordinated, *, state: EndState, sentence: str) -> bytes:
        """A signed outcome. Raises FailureError where its list of weights is longer than any peer takes."""
        found, job = running.machine.statistics(), running.job
        outcome = Outcome(
            format=1,
            job=job.id,
            state=state,
            sentence=printable(sentence),
            wall=self._context.clock.wall(),
            step=found.step,
            held_out=found.held_out if math.isfinite(found.held_out) else None,
            weights=complete_weights(job, running.machine.weights) if state == "done" else (),
        )
        return seal(self._context.identity, OUTCOME, msgspec.msgpack.encode(outcome))

    def _broadcast(self, message: Message) -> None:
        for peer in self._context.peers():
            self._context.send(peer, message)
        self._context.send(self._context.identity.peer, message)
