"""The jobs this node knows of: announced by any member, believed by signature, told on to every link.

Other services listen: the coordinator takes the jobs that name this peer, the holder offers itself to them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from swarm.errors import FailureError, MisuseError, RemoteProtocolError
from swarm.identity.chain import Member
from swarm.identity.envelope import CANCELLATION, MANIFEST, PLAN, open_envelope, seal
from swarm.identity.rights import Right
from swarm.ids import JobId, PeerId, job_id, short
from swarm.services.context import Context, Service
from swarm.services.status.curve import LossCurve
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import PlanIssue
from swarm.wire.messages.jobs import JobAnnounce, JobCancel, JobFollow, JobNotice, JobProgress, JobState
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.manifest import Cancellation, Manifest
from swarm.wire.records.plan import Plan

MAX_JOBS: Final = 256
"""Jobs remembered; the oldest ended one makes room. A member with ``train`` can fill no more than this."""

COORDINATOR_SECONDS: Final = 10.0
"""How long a job's coordinator may be out of reach before those who follow the job give it up."""

ENDED: Final[frozenset[JobState]] = frozenset({"done", "failed", "cancelled"})

_SPEED_WINDOW: Final = 20
"""Steps over which tokens a second are measured."""


@dataclass(slots=True)
class Job:
    """What this node knows of one job; the coordinator's word where it has heard it."""

    id: JobId
    envelope: bytes
    manifest: Manifest
    author: PeerId
    state: JobState = "waiting"
    sentence: str = "nothing heard from its coordinator yet"
    since: float = 0.0
    until: float = 0.0
    step: int = 0
    losses: list[float] = field(default_factory=list)
    """Of the steps heard of, from the first on; only followers hear all."""
    moments: list[float] = field(default_factory=list)
    """When the last records came, for the speed (``Clock.elapsed``)."""
    held_out: float = float("nan")
    weights: tuple[TensorBlob, ...] = ()
    replicas: int = 0
    heard: bool = False
    """Whether its coordinator, perhaps this peer itself, has said how it stands."""
    plan: Plan | None = None
    curve: LossCurve = field(default_factory=LossCurve)
    cancellation: bytes = b""

    @property
    def coordinator(self) -> PeerId:
        """The peer that decides for the job."""
        return PeerId(self.manifest.council[0])

    @property
    def ended(self) -> bool:
        """Whether it will never go on."""
        return self.state in ENDED

    @property
    def tokens_per_step(self) -> int:
        """Elements of the target that one step learns from."""
        manifest = self.manifest
        return manifest.tokens_per_sample * manifest.micro_batch_size * manifest.micro_batches

    @property
    def tokens_per_second(self) -> float:
        """Over the last steps; 0 before the second step."""
        moments = self.moments
        if len(moments) < 2 or moments[-1] <= moments[0]:
            return 0.0
        return self.tokens_per_step * (len(moments) - 1) / (moments[-1] - moments[0])

    def advance(self, progress: JobProgress, now: float) -> None:
        """Take in what was agreed about a step."""
        if progress.outcome == "evaluated":
            self.held_out = progress.loss
        if progress.outcome != "applied" or progress.step != len(self.losses):
            return
        self.losses.append(progress.loss)
        self.curve.add(progress.step, progress.loss)
        self.step = len(self.losses)
        self.moments.append(now)
        del self.moments[:-_SPEED_WINDOW]


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
        now = self._context.clock.wall()
        member, payload = open_envelope(
            envelope, domain=MANIFEST, authority=self._context.identity.authority, now=now
        )
        try:
            manifest = msgspec.msgpack.decode(payload, type=Manifest)
        except msgspec.DecodeError as error:
            raise RemoteProtocolError(f"a manifest does not parse: {error}") from None
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
        now = self._context.clock.wall()
        member, payload = open_envelope(
            envelope, domain=CANCELLATION, authority=self._context.identity.authority, now=now
        )
        try:
            wish = msgspec.msgpack.decode(payload, type=Cancellation)
        except msgspec.DecodeError as error:
            raise RemoteProtocolError(f"a cancellation does not parse: {error}") from None
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

    def _planned(self, sender: PeerId, message: PlanIssue) -> None:
        authority, now = self._context.identity.authority, self._context.clock.wall()
        member, payload = open_envelope(message.plan, domain=PLAN, authority=authority, now=now)
        try:
            plan = msgspec.msgpack.decode(payload, type=Plan)
        except msgspec.DecodeError as error:
            raise RemoteProtocolError(f"a plan does not parse: {error}") from None
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
        if job.cancellation and notice.state != "cancelled":
            return
        job.state, job.sentence, job.since, job.until = (
            notice.state,
            notice.sentence,
            notice.since,
            notice.until,
        )
        job.weights, job.replicas = notice.weights, notice.replicas
        job.held_out = notice.held_out
        job.step = max(job.step, notice.step)
        job.heard = True
        self.changed(job)

    def _advanced(self, sender: PeerId, progress: JobProgress) -> bool:
        job = self._jobs.get(JobId(progress.job))
        if job is None or sender != job.coordinator:
            return False
        job.advance(progress, self._context.clock.elapsed())
        self.changed(job)
        return True
