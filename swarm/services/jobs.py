"""The jobs this node knows of: announced by any member, believed by signature, told on to every link.

Other services listen: the coordinator takes the jobs that name this peer, the holder offers itself to them.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from swarm.errors import FailureError, MisuseError, RemoteProtocolError
from swarm.identity.chain import Member
from swarm.identity.envelope import CANCELLATION, MANIFEST, OUTCOME, PLAN, seal
from swarm.identity.rights import Right
from swarm.ids import JobId, PeerId, job_id, short
from swarm.services.context import Context, Service
from swarm.services.job import Job
from swarm.services.signed import read_signed
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import PlanIssue
from swarm.wire.messages.jobs import (
    JobAnnounce,
    JobCancel,
    JobFollow,
    JobNotice,
    JobOutcome,
    JobProgress,
    JobState,
)
from swarm.wire.records.manifest import Cancellation, Manifest
from swarm.wire.records.outcome import Outcome
from swarm.wire.records.plan import Plan

MAX_JOBS: Final = 256
"""Jobs remembered; the oldest ended one makes room. A member with ``train`` can fill no more than this."""

NEWS_SECONDS: Final = 600.0
"""A job that was published longer ago is no news to a node that hears of it only now."""

COORDINATOR_SECONDS: Final = 10.0
"""How long a job's coordinator may be out of reach before those who follow the job give it up."""


class Jobs(Service):
    """The register of jobs. Listeners hear of new, changed, cancelled and forgotten jobs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs: dict[JobId, Job] = {}
        self.on_job: list[Callable[[Job], None]] = []
        self.on_change: list[Callable[[Job], None]] = []
        self.on_plan: list[Callable[[Job, Plan], None]] = []
        self.on_cancel: list[Callable[[Job], None]] = []
        self.on_forget: list[Callable[[Job], None]] = []

    def all(self) -> tuple[Job, ...]:
        """Every job known, oldest first."""
        return tuple(sorted(self._jobs.values(), key=lambda job: (job.manifest.created, job.id)))

    def get(self, job: JobId) -> Job | None:
        """The job, where it is known."""
        return self._jobs.get(job)

    def find(self, prefix: str) -> Job:
        """The one job whose id begins with ``prefix``; MisuseError where there is none, or more."""
        found = [job for job in self.all() if job.id.startswith(prefix.lower())]
        if not found:
            known = ", ".join(short(job.id) for job in self.all()) or "none"
            raise MisuseError(f"no job begins with {prefix!r}; known here: {known}")
        if len(found) > 1:
            raise MisuseError(f"{len(found)} jobs begin with {prefix!r}: give more characters")
        return found[0]

    # What the people of this node want.

    def publish(self, manifest: Manifest) -> Job:
        """Sign and announce a job of this peer's; raises FailureError without the right ``train``."""
        identity = self._context.identity
        if Right.TRAIN not in identity.member.rights:
            raise FailureError(
                "this invite does not allow publishing jobs: ask the organiser for one with --may train"
            )
        envelope = seal(identity, MANIFEST, msgspec.msgpack.encode(manifest))
        return self._learn(envelope, from_peer=identity.peer)

    def cancel(self, job: Job) -> None:
        """Sign a cancellation and send it to everybody; FailureError where this peer may not."""
        identity = self._context.identity
        if job.author != identity.peer and Right.ORGANISE not in identity.member.rights:
            raise FailureError(
                f"only its author {short(job.author)} or an organiser can cancel job {short(job.id)}"
            )
        wish = Cancellation(job=job.id, wall=self._context.clock.wall())
        envelope = seal(identity, CANCELLATION, msgspec.msgpack.encode(wish))
        self._cancelled(envelope, identity.peer)

    def follow(self, job: Job) -> None:
        """Ask the coordinator for every step record from where we are, and for notices."""
        self._context.send(job.coordinator, JobFollow(job=job.id, since=len(job.losses)))

    # What other members say.

    def on_up(self, peer: PeerId) -> None:
        """A link is up: tell the other side what jobs there are."""
        for job in self.all():
            self._context.send(peer, JobAnnounce(manifest=job.envelope))
            if job.cancellation:
                self._context.send(peer, JobCancel(cancellation=job.cancellation))
            if job.outcome:
                self._context.send(peer, JobOutcome(outcome=job.outcome))
            if job.coordinator == peer and not job.ended:
                self.follow(job)

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link ended: jobs whose coordinator was behind it have a while to hear of it again."""
        for job in self.all():
            if job.coordinator == peer and not job.ended:
                lost = f"at step {job.step} its coordinator, peer {short(peer)}, {reason}"
                self._context.tasks.create_task(self._miss(job, lost), name="miss a coordinator")

    async def _miss(self, job: Job, lost: str) -> None:
        await asyncio.sleep(COORDINATOR_SECONDS)
        if not job.ended and job.coordinator not in self._context.links:
            self.change(job, state="failed", sentence=lost)

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Take a message of this flow; False for any other."""
        del payload
        match message:
            case JobAnnounce():
                self._learn(message.manifest, from_peer=sender)
            case JobCancel():
                self._cancelled(message.cancellation, sender)
            case JobNotice():
                self._noticed(sender, message)
            case JobOutcome():
                self.settle(message.outcome, from_peer=sender)
            case PlanIssue():
                self._planned(sender, message)
            case JobProgress() if sender != self._context.identity.peer:
                return self._advanced(sender, message)
            case _:
                return False
        return True

    def change(self, job: Job, *, state: JobState, sentence: str, until: float = 0.0) -> None:
        """Set where a job stands, and tell the listeners."""
        if state != job.state:
            job.since = self._context.clock.wall()
        job.state, job.sentence, job.until = state, sentence, until
        self.changed(job)

    def changed(self, job: Job) -> None:
        """Tell the listeners."""
        for listener in self.on_change:
            listener(job)

    def recall(self, envelope: bytes) -> Job:
        """Take up a job of an earlier run; raises RemoteProtocolError where its envelope does not hold."""
        member, manifest = self._open(envelope)
        now = self._context.clock.wall()
        job = Job(id=job_id(envelope), envelope=envelope, manifest=manifest, author=member.peer, since=now)
        self._jobs[job.id] = job
        return job

    def _learn(self, envelope: bytes, *, from_peer: PeerId) -> Job:
        known = self._jobs.get(job_id(envelope))
        if known is not None:
            return known
        self._make_room()
        job = self.recall(envelope)
        manifest = job.manifest
        if self._context.clock.wall() - manifest.created < NEWS_SECONDS:
            words = f"job {short(job.id)} ({manifest.name}) was published by peer {short(job.author)}"
            self._context.story.tell("job", words, peer=job.author)
        for peer in self._context.peers():
            if peer != from_peer:
                self._context.send(peer, JobAnnounce(manifest=envelope))
        for listener in self.on_job:
            listener(job)
        if not job.ended and job.coordinator != self._context.identity.peer:
            self.follow(job)
        return job

    def _open(self, envelope: bytes) -> tuple[Member, Manifest]:
        member, manifest = read_signed(envelope, MANIFEST, Manifest, self._context)
        if Right.TRAIN not in member.rights:
            raise RemoteProtocolError(f"peer {short(member.peer)} published a job without the right to")
        if manifest.swarm != self._context.identity.swarm:
            raise RemoteProtocolError("a manifest is for another swarm")
        return member, manifest

    def _make_room(self) -> None:
        if len(self._jobs) < MAX_JOBS:
            return
        ended = [job for job in self.all() if job.ended]
        if not ended:
            raise RemoteProtocolError(f"{MAX_JOBS} jobs are running or waiting: no more are taken")
        del self._jobs[ended[0].id]
        for listener in self.on_forget:
            listener(ended[0])

    def _cancelled(self, envelope: bytes, sender: PeerId) -> None:
        member, wish = read_signed(envelope, CANCELLATION, Cancellation, self._context)
        job = self._jobs.get(JobId(wish.job))
        if job is None or job.ended or job.cancellation:
            return
        if member.peer != job.author and Right.ORGANISE not in member.rights:
            raise RemoteProtocolError(f"peer {short(member.peer)} cancelled a job that is not its own")
        job.cancellation = envelope
        for peer in self._context.peers():
            if peer != sender:
                self._context.send(peer, JobCancel(cancellation=envelope))
        self.change(job, state="cancelled", sentence=f"cancelled by peer {short(member.peer)}")
        for listener in self.on_cancel:
            listener(job)

    def settle(self, envelope: bytes, *, from_peer: PeerId) -> None:
        """Take in how a job ended, and pass it on.

        Raises RemoteProtocolError where its coordinator has not signed that. A job that is not known, or
        ended already in its coordinator's word, is left as it is.
        """
        member, outcome = read_signed(envelope, OUTCOME, Outcome, self._context)
        job = self._jobs.get(JobId(outcome.job))
        if job is None or job.outcome:
            return
        if member.peer != job.coordinator:
            raise RemoteProtocolError(f"the outcome of job {short(job.id)} is not signed by its coordinator")
        job.outcome, job.heard = envelope, True
        job.state, job.sentence, job.since, job.until = outcome.state, outcome.sentence, outcome.wall, 0.0
        job.step, job.held_out, job.weights = outcome.step, outcome.held_out, outcome.weights
        for peer in self._context.peers():
            if peer != from_peer:
                self._context.send(peer, JobOutcome(outcome=envelope))
        self.changed(job)

    def _planned(self, sender: PeerId, message: PlanIssue) -> None:
        member, plan = read_signed(message.plan, PLAN, Plan, self._context)
        job = self._jobs.get(JobId(plan.job))
        if job is None or job.ended:
            return
        if member.peer != job.coordinator:
            raise RemoteProtocolError(
                f"peer {short(sender)} sent a plan that the job's coordinator did not make"
            )
        if job.plan is not None and job.plan.generation >= plan.generation:
            return
        job.plan = plan
        for listener in self.on_plan:
            listener(job, plan)

    def _noticed(self, sender: PeerId, notice: JobNotice) -> None:
        job = self._jobs.get(JobId(notice.job))
        if job is None:
            return
        if sender != job.coordinator:
            raise RemoteProtocolError(f"a notice of job {short(job.id)} did not come from its coordinator")
        if job.cancellation or job.outcome:
            return
        job.state, job.sentence = notice.state, notice.sentence
        job.since, job.until = notice.since, notice.until
        job.replicas, job.heard = notice.replicas, True
        job.step = max(job.step, notice.step)
        self.changed(job)

    def _advanced(self, sender: PeerId, progress: JobProgress) -> bool:
        job = self._jobs.get(JobId(progress.job))
        if job is None or sender != job.coordinator:
            return False
        job.advance(progress, self._context.clock.elapsed())
        self.changed(job)
        return True
