"""The jobs this node knows of: announced by any member, believed by signature, told on to every link.

Other services listen: the coordinator takes the jobs that name this peer, the holder offers itself to them.
"""

import math
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from swarm.errors import CapacityError, FailureError, LinkLostError, MisuseError, RemoteProtocolError
from swarm.identity.chain import Member
from swarm.identity.envelope import CANCELLATION, MANIFEST, OUTCOME, PLAN, seal
from swarm.identity.rights import Right
from swarm.ids import JobId, PeerId, job_id, short
from swarm.log import get_log
from swarm.services.absence import Absence
from swarm.services.boundary import job_boundary
from swarm.services.context import Context, Service
from swarm.services.job import Job
from swarm.services.job_check import check_manifest, check_plan, check_weights
from swarm.services.signed import RevokedSignerError, peek, read_signed
from swarm.wire.limits import MIB
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
MAX_JOB_BYTES: Final = 16 * MIB
"""Jobs remembered, and bytes of their manifests, which take ten times that in memory. The oldest ended one
makes room. A manifest has 20 to 200 KiB."""

MAX_AUTHOR_JOBS: Final = 32
MAX_AUTHOR_BYTES: Final = 4 * MIB
"""What one author may have of that in jobs that have not ended, so that no author shuts out the others."""

ANNOUNCED_AT_ONCE: Final = 4
"""Jobs that are told to a new link in one go; the next ones follow when those are sent."""

NEWS_SECONDS: Final = 600.0
"""A job that was published longer ago is no news to a node that hears of it only now."""

_log = get_log(__name__)


class Jobs(Service):
    """The register of jobs. Listeners hear of new, changed, cancelled and forgotten jobs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._jobs: dict[JobId, Job] = {}
        self._absence = Absence(context, self.change)
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
        try:
            return self._learn(envelope, from_peer=identity.peer)
        except RemoteProtocolError as error:
            raise FailureError(f"no peer would take this job: {error}") from None

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
        self._context.tasks.create_task(self._introduce(peer), name=f"tell jobs to {short(peer)}")
        for job in self.all():
            if job.coordinator == peer and not job.ended:
                self.follow(job)

    async def _introduce(self, peer: PeerId) -> None:
        """Tell ``peer`` every job, no faster than it takes them."""
        link = self._context.links.get(peer)
        with suppress(LinkLostError):
            for number, job in enumerate(self.all(), start=1):
                if link is None or job.id not in self._jobs:
                    continue
                sending = link.post(JobAnnounce(manifest=job.envelope))
                if job.cancellation:
                    sending = link.post(JobCancel(cancellation=job.cancellation))
                if job.outcome:
                    sending = link.post(JobOutcome(outcome=job.outcome))
                if number % ANNOUNCED_AT_ONCE == 0:
                    await sending.wait()

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link ended: jobs whose coordinator was behind it wait for that."""
        for job in self.all():
            if job.coordinator == peer and not job.ended:
                self._absence.begin(job, reason)

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Take a message of this flow; False for any other, and for what is signed for a job nobody knows."""
        del payload
        try:
            return self._take(sender, message)
        except RevokedSignerError as error:
            _log.debug("passed over", reason=str(error), told_by=sender)
            return True

    def _take(self, sender: PeerId, message: Message) -> bool:
        match message:
            case JobAnnounce():
                return self._announced(message, sender)
            case JobCancel():
                return self._cancelled(message.cancellation, sender)
            case JobNotice():
                self._noticed(sender, message)
            case JobOutcome():
                return self.settle(message.outcome, from_peer=sender)
            case PlanIssue():
                return self._planned(sender, message)
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
        check_manifest(manifest)
        now = self._context.clock.wall()
        job = Job(id=job_id(envelope), envelope=envelope, manifest=manifest, author=member.peer, since=now)
        self._jobs[job.id] = job
        return job

    def resume(self, job: Job) -> None:
        """Go on with a job of an earlier run that had not ended; called before links come up."""
        self._begin(job)
        if job.coordinator != self._context.identity.peer:
            self._absence.begin(job, "is not linked yet")

    def _begin(self, job: Job) -> None:
        with job_boundary(job.id, partial(self._context.end_job, job.id)):
            for listener in self.on_job:
                listener(job)

    def _announced(self, message: JobAnnounce, sender: PeerId) -> bool:
        """A job that there is no room for is no fault of who tells of it: other nodes know other jobs."""
        try:
            self._learn(message.manifest, from_peer=sender)
        except CapacityError as error:
            _log.debug("a job is not taken", peer=sender, cause=str(error))
            return False
        return True

    def _learn(self, envelope: bytes, *, from_peer: PeerId) -> Job:
        known = self._jobs.get(job_id(envelope))
        if known is not None:
            return known
        job = self.recall(envelope)
        try:
            self._make_room(job)
        except CapacityError:
            del self._jobs[job.id]
            raise
        manifest = job.manifest
        if self._context.clock.wall() - manifest.created < NEWS_SECONDS:
            words = f"job {short(job.id)} ({manifest.name}) was published by peer {short(job.author)}"
            self._context.story.tell("job", words, peer=job.author)
        for peer in self._context.peers():
            if peer != from_peer:
                self._context.send(peer, JobAnnounce(manifest=envelope))
        self._begin(job)
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

    def _make_room(self, new: Job) -> None:
        """Forget ended jobs, oldest first, until ``new`` fits in. Raises CapacityError if it cannot."""
        running = [job for job in self._jobs.values() if not job.ended]
        theirs = [job for job in running if job.author == new.author]
        if not _fit(theirs, MAX_AUTHOR_JOBS, MAX_AUTHOR_BYTES):
            raise CapacityError(f"peer {short(new.author)} has too many jobs that have not ended")
        if not _fit(running, MAX_JOBS, MAX_JOB_BYTES):
            raise CapacityError(f"{len(running) - 1} jobs are running or waiting: no more are taken")
        for oldest in [job for job in self.all() if job.ended]:
            if _fit(self._jobs.values(), MAX_JOBS, MAX_JOB_BYTES):
                return
            del self._jobs[oldest.id]
            for listener in self.on_forget:
                listener(oldest)

    def _cancelled(self, envelope: bytes, sender: PeerId) -> bool:
        job = self._jobs.get(JobId(peek(envelope, CANCELLATION, Cancellation).job))
        if job is None or job.ended or job.cancellation:
            return job is not None
        member, _ = read_signed(envelope, CANCELLATION, Cancellation, self._context)
        if member.peer != job.author and Right.ORGANISE not in member.rights:
            raise RemoteProtocolError(f"peer {short(member.peer)} cancelled a job that is not its own")
        self._absence.end(job)
        job.cancellation = envelope
        for peer in self._context.peers():
            if peer != sender:
                self._context.send(peer, JobCancel(cancellation=envelope))
        self.change(job, state="cancelled", sentence=f"cancelled by peer {short(member.peer)}")
        for listener in self.on_cancel:
            listener(job)
        return True

    def drop_revoked(self) -> None:
        """Cancel the jobs of authors who were revoked, and give up those of revoked coordinators."""
        for job in self.all():
            if not job.ended and self._author_is_revoked(job):
                self._absence.end(job)
                self.change(job, state="cancelled", sentence=f"its author {short(job.author)} was revoked")
                for listener in self.on_cancel:
                    listener(job)
            elif not job.ended and job.coordinator in self._context.revocations.peers:
                self._absence.end(job)
                words = f"at step {job.step} its coordinator {short(job.coordinator)} was revoked"
                self.change(job, state="failed", sentence=words)

    def _author_is_revoked(self, job: Job) -> bool:
        try:
            self._open(job.envelope)
        except RevokedSignerError:
            return True
        return False

    def settle(self, envelope: bytes, *, from_peer: PeerId) -> bool:
        """Take in how a job ended, and pass it on; False where the job is not known.

        Raises RemoteProtocolError where its coordinator has not signed that. A job that ended already in its
        coordinator's word is left as it is.
        """
        job = self._jobs.get(JobId(peek(envelope, OUTCOME, Outcome).job))
        if job is None or job.outcome:
            return job is not None
        # How a job ended stays true when its coordinator is revoked later.
        member, outcome = read_signed(envelope, OUTCOME, Outcome, self._context, revoked_too=True)
        if member.peer != job.coordinator:
            raise RemoteProtocolError(f"the outcome of job {short(job.id)} is not signed by its coordinator")
        if outcome.state == "done":
            check_weights(outcome.weights, job.manifest)
        self._absence.end(job)
        job.outcome, job.heard = envelope, True
        job.state, job.sentence, job.since, job.until = outcome.state, outcome.sentence, outcome.wall, 0.0
        job.step, job.weights = outcome.step, outcome.weights
        job.held_out = math.nan if outcome.held_out is None else outcome.held_out
        for peer in self._context.peers():
            if peer != from_peer:
                self._context.send(peer, JobOutcome(outcome=envelope))
        self.changed(job)
        return True

    def _planned(self, sender: PeerId, message: PlanIssue) -> bool:
        unproven = peek(message.plan, PLAN, Plan)
        job = self._jobs.get(JobId(unproven.job))
        if job is None or job.ended:
            return job is not None
        if job.plan is not None and job.plan.generation >= unproven.generation:
            return True
        member, plan = read_signed(message.plan, PLAN, Plan, self._context)
        if member.peer != job.coordinator:
            raise RemoteProtocolError(
                f"peer {short(sender)} sent a plan that the job's coordinator did not make"
            )
        own = sender == self._context.identity.peer
        with job_boundary(
            job.id, partial(self._context.end_job, job.id), passes=() if own else (RemoteProtocolError,)
        ):
            check_plan(plan, job.manifest)
            job.plan = plan
            for listener in self.on_plan:
                listener(job, plan)
        return True

    def _noticed(self, sender: PeerId, notice: JobNotice) -> None:
        job = self._jobs.get(JobId(notice.job))
        if job is None:
            return
        if sender != job.coordinator:
            raise RemoteProtocolError(f"a notice of job {short(job.id)} did not come from its coordinator")
        given_up = job.ended
        if job.cancellation or job.outcome or (given_up and self._author_is_revoked(job)):
            return
        self._absence.end(job)
        job.state, job.sentence = notice.state, notice.sentence
        job.since, job.until = notice.since, notice.until
        job.replicas, job.heard = notice.replicas, True
        job.step = max(job.step, notice.step)
        self.changed(job)
        if given_up:
            self._begin(job)
            self.follow(job)

    def _advanced(self, sender: PeerId, progress: JobProgress) -> bool:
        job = self._jobs.get(JobId(progress.job))
        if job is None or sender != job.coordinator:
            return False
        job.advance(progress, self._context.clock.elapsed())
        self.changed(job)
        return True


def _fit(jobs: Collection[Job], most: int, most_bytes: int) -> bool:
    return len(jobs) <= most and sum(len(job.envelope) for job in jobs) <= most_bytes
