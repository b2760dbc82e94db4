"""The register of jobs: who is believed, what spreads, what is forgotten."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from swarm.clock import Clock, SystemClock
from swarm.errors import FailureError, MisuseError, RemoteProtocolError
from swarm.identity.authority import Authority
from swarm.identity.envelope import CANCELLATION, MANIFEST, OUTCOME, PLAN, seal
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.revocations import Revocations
from swarm.identity.rights import ALL_RIGHTS, CONTRIBUTE_ONLY, Right
from swarm.ids import JobId, PeerId, job_id
from swarm.log import get_log
from swarm.protocol.patience import AWAY_SECONDS
from swarm.services import jobs as module
from swarm.services.job import Job
from swarm.services.jobs import Jobs
from swarm.services.story import Story
from swarm.testing.clock import ManualClock
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import PlanIssue
from swarm.wire.messages.jobs import JobAnnounce, JobCancel, JobFollow, JobNotice, JobOutcome, JobProgress
from swarm.wire.records.blobs import Blob
from swarm.wire.records.manifest import Cancellation, Dataset, Field, Manifest, Optimizer, Schedule
from swarm.wire.records.outcome import Outcome
from swarm.wire.records.plan import Plan, StagePlan

CLOCK = SystemClock()
AUTHORITY = Authority.create("lab", public=False, now=CLOCK.wall())
NOTHING = memoryview(b"")


def member(rights: frozenset[Right] = ALL_RIGHTS, authority: Authority = AUTHORITY) -> Identity:
    invite = authority.issue(label="x", rights=rights, now=CLOCK.wall())
    return Identity.join(invite, key=PrivateKey.generate(), now=CLOCK.wall())


ME, AUTHOR, COORDINATOR, OTHER = member(), member(), member(), member(CONTRIBUTE_ONLY)


class FakeLink:
    """Sends at once, into its node's list; counts who waits for that."""

    def __init__(self, node: "FakeNode", peer: PeerId) -> None:
        self.node, self.peer, self.waits = node, peer, 0

    def post(self, message: Message) -> "FakeLink":
        self.node.send(self.peer, message)
        return self

    async def wait(self) -> None:
        self.waits += 1


class FakeNode:
    """A context that keeps what is sent."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.revocations = Revocations(identity.authority)
        self.clock: Clock = CLOCK
        self.story = Story(CLOCK, get_log("test"))
        self.links: dict[PeerId, Any] = {}
        self.tasks = asyncio.TaskGroup()
        self.sent: list[tuple[PeerId, Message]] = []
        self.ended: list[tuple[JobId, str]] = []

    def end_job(self, job: JobId, sentence: str) -> None:
        self.ended.append((job, sentence))

    def peers(self) -> tuple[PeerId, ...]:
        return tuple(sorted(self.links))

    def send(self, peer: PeerId, message: Message, payload: object = b"") -> bool:
        assert not payload
        self.sent.append((peer, message))
        return True

    def take(self) -> list[tuple[PeerId, Message]]:
        sent, self.sent = self.sent, []
        return sent


def manifest(**changes: Any) -> Manifest:
    blob = Blob(size=4, blocks=("q" * 52,))
    fields: dict[str, Any] = {
        "format": 1,
        "swarm": ME.swarm,
        "name": "gpt",
        "created": 1.0,
        "graph": blob,
        "evaluation": blob,
        "tensors": (),
        "state": (),
        "dataset": Dataset(6, (Field("uint8", (4,), 6, Blob(size=24, blocks=("q" * 52,))),)),
        "held_out": None,
        "optimizer": Optimizer(kind="sgd", lr=0.1, schedule=Schedule(kind="constant", warmup=0, floor=0.0)),
        "micro_batch_size": 2,
        "micro_batches": 3,
        "steps": 10,
        "seed": 0,
        "tokens_per_sample": 5,
        "council": (COORDINATOR.peer,),
        "patience": 0.0,
    }
    return Manifest(**(fields | changes))


def announced(by: Identity = AUTHOR, **changes: Any) -> JobAnnounce:
    return JobAnnounce(manifest=seal(by, MANIFEST, msgspec.msgpack.encode(manifest(**changes))))


def cancelled(by: Identity, job: str) -> JobCancel:
    return JobCancel(
        cancellation=seal(by, CANCELLATION, msgspec.msgpack.encode(Cancellation(job=job, wall=1.0)))
    )


def progress(job: str, step: int, outcome: str = "applied", loss: float = 1.0) -> JobProgress:
    return JobProgress(
        job=job,
        incarnation=1,
        step=step,
        outcome=outcome,
        clip=1.0,
        norm=1.0,
        loss=loss,
        cause="",  # type: ignore[arg-type]
    )


def notice(job: str, state: Any, step: int = 0) -> JobNotice:
    return JobNotice(job=job, state=state, sentence="so", since=5.0, until=0.0, step=step, replicas=1)


def outcome(job: str, by: Identity = COORDINATOR, **changes: Any) -> JobOutcome:
    fields: dict[str, Any] = {
        "format": 1,
        "job": job,
        "state": "done",
        "sentence": "so",
        "wall": 9.0,
        "step": 10,
        "held_out": 0.5,
        "weights": (),
    }
    return JobOutcome(outcome=seal(by, OUTCOME, msgspec.msgpack.encode(Outcome(**(fields | changes)))))


@pytest.fixture
def node() -> FakeNode:
    made = FakeNode(ME)
    made.links = {peer: FakeLink(made, peer) for peer in (COORDINATOR.peer, OTHER.peer)}
    return made


@pytest.fixture
def jobs(node: FakeNode) -> Jobs:
    return Jobs(node)


def learn(jobs: Jobs, message: JobAnnounce | None = None, sender: Identity = OTHER) -> Job:
    message = message or announced()
    assert jobs.handle(sender.peer, message, NOTHING)
    found = jobs.get(job_id(message.manifest))
    assert found is not None
    return found


def test_a_job_is_passed_on_to_everybody_but_its_bringer_and_its_coordinator_is_followed(
    jobs: Jobs, node: FakeNode
) -> None:
    heard: list[Job] = []
    jobs.on_job.append(heard.append)
    message = announced()
    job = learn(jobs, message)
    assert node.take() == [
        (COORDINATOR.peer, message),
        (COORDINATOR.peer, JobFollow(job=job.id, since=0)),
    ]
    assert heard == [job]
    assert job.author == AUTHOR.peer
    learn(jobs, message)
    assert node.take() == []
    assert heard == [job]


@pytest.mark.parametrize(
    ("message", "complaint"),
    [
        (announced(by=OTHER), "without the right"),
        (announced(swarm="b" * 32), "another swarm"),
        (JobAnnounce(manifest=b"\x00" * 50), "does not parse"),
        (JobAnnounce(manifest=seal(AUTHOR, MANIFEST, b"\x93")), "does not parse"),
        (JobAnnounce(manifest=seal(AUTHOR, PLAN, msgspec.msgpack.encode(manifest()))), "signed as plan"),
    ],
)
def test_a_job_that_nobody_may_publish_is_charged_to_who_brings_it(
    jobs: Jobs, node: FakeNode, message: JobAnnounce, complaint: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=complaint):
        jobs.handle(OTHER.peer, message, NOTHING)
    assert jobs.all() == ()
    assert node.take() == []


def test_a_job_of_another_swarms_author_is_refused(jobs: Jobs) -> None:
    stranger = member(authority=Authority.create("other", public=False, now=CLOCK.wall()))
    with pytest.raises(RemoteProtocolError, match="not known"):
        jobs.handle(OTHER.peer, announced(by=stranger), NOTHING)


@pytest.mark.parametrize("canceller", [AUTHOR, ME])  # ME may organise
def test_author_and_organisers_may_cancel(jobs: Jobs, node: FakeNode, canceller: Identity) -> None:
    job = learn(jobs)
    node.take()
    told: list[Job] = []
    jobs.on_cancel.append(told.append)
    wish = cancelled(canceller, job.id)
    jobs.handle(COORDINATOR.peer, wish, NOTHING)
    assert (job.state, told) == ("cancelled", [job])
    assert node.take() == [(OTHER.peer, wish)]
    jobs.handle(OTHER.peer, wish, NOTHING)
    assert told == [job]


def test_nobody_else_may_cancel(jobs: Jobs) -> None:
    job = learn(jobs)
    with pytest.raises(RemoteProtocolError, match="not its own"):
        jobs.handle(OTHER.peer, cancelled(OTHER, job.id), NOTHING)
    assert not job.ended


def test_a_cancelled_job_does_not_come_back_by_an_old_notice(jobs: Jobs) -> None:
    job = learn(jobs)
    jobs.handle(AUTHOR.peer, cancelled(AUTHOR, job.id), NOTHING)
    jobs.handle(COORDINATOR.peer, notice(job.id, "training"), NOTHING)
    assert job.state == "cancelled"


def test_only_the_coordinator_says_how_a_job_stands(jobs: Jobs) -> None:
    job = learn(jobs)
    with pytest.raises(RemoteProtocolError, match="coordinator"):
        jobs.handle(OTHER.peer, notice(job.id, "training"), NOTHING)
    jobs.handle(COORDINATOR.peer, notice(job.id, "training", step=4), NOTHING)
    assert (job.state, job.step, job.heard) == ("training", 4, True)
    assert not jobs.handle(OTHER.peer, progress(job.id, 0), NOTHING)
    assert job.losses == []


async def test_an_outcome_counts_from_anybody_under_the_coordinators_signature_and_is_passed_on(
    jobs: Jobs, node: FakeNode
) -> None:
    job = learn(jobs)
    node.take()
    with pytest.raises(RemoteProtocolError, match="not signed by its coordinator"):
        jobs.handle(COORDINATOR.peer, outcome(job.id, by=AUTHOR), NOTHING)
    word = outcome(job.id)
    jobs.handle(OTHER.peer, word, NOTHING)
    assert (job.state, job.step, job.held_out, job.heard) == ("done", 10, 0.5, True)
    assert node.take() == [(COORDINATOR.peer, word)]
    jobs.handle(OTHER.peer, outcome(job.id, state="failed"), NOTHING)  # it has ended already
    jobs.handle(COORDINATOR.peer, notice(job.id, "training"), NOTHING)
    assert job.state == "done"
    node.links[AUTHOR.peer] = FakeLink(node, AUTHOR.peer)
    async with node.tasks:
        jobs.on_up(AUTHOR.peer)
    assert (AUTHOR.peer, word) in node.take()


def test_losses_are_taken_in_order_and_once(jobs: Jobs) -> None:
    job = learn(jobs)
    for step, loss in [(0, 3.0), (0, 3.0), (2, 9.0), (1, 2.0)]:
        jobs.handle(COORDINATOR.peer, progress(job.id, step, loss=loss), NOTHING)
    assert job.losses == [3.0, 2.0]
    jobs.handle(COORDINATOR.peer, progress(job.id, 10, "evaluated", loss=1.5), NOTHING)
    assert job.held_out == 1.5


async def test_a_link_that_comes_up_hears_of_every_job_and_of_cancellations(
    jobs: Jobs, node: FakeNode
) -> None:
    message = announced()
    job = learn(jobs, message)
    jobs.handle(AUTHOR.peer, cancelled(AUTHOR, job.id), NOTHING)
    node.take()
    async with node.tasks:
        jobs.on_up(OTHER.peer)
    assert [type(sent) for _, sent in node.take()] == [JobAnnounce, JobCancel]


async def test_many_jobs_are_told_no_faster_than_they_are_taken(jobs: Jobs, node: FakeNode) -> None:
    for created in range(3 * module.ANNOUNCED_AT_ONCE):
        learn(jobs, announced(created=float(created)))
    node.take()
    async with node.tasks:
        jobs.on_up(OTHER.peer)
    assert [type(sent) for _, sent in node.take()] == [JobAnnounce] * 3 * module.ANNOUNCED_AT_ONCE
    assert node.links[OTHER.peer].waits == 3


def plan(job: Job, generation: int, by: Identity = COORDINATOR, step: int = 0) -> PlanIssue:
    stage = StagePlan(
        first=0, last=1, evaluation=(), holder=OTHER.peer, incarnation=1, depth=1, memory=1, seconds=0.0
    )
    made = Plan(format=1, job=job.id, generation=generation, step=step, stages=(stage,), explanation=())
    return PlanIssue(plan=seal(by, PLAN, msgspec.msgpack.encode(made)))


def test_a_plan_counts_only_under_the_coordinators_signature_and_only_forward(jobs: Jobs) -> None:
    job = learn(jobs)
    heard: list[int] = []
    jobs.on_plan.append(lambda _, made: heard.append(made.generation))
    with pytest.raises(RemoteProtocolError, match="did not make"):
        jobs.handle(COORDINATOR.peer, plan(job, 1, by=AUTHOR), NOTHING)
    with pytest.raises(RemoteProtocolError, match="begins at step 10 of 10"):
        jobs.handle(COORDINATOR.peer, plan(job, 1, step=10), NOTHING)
    for generation in (1, 3, 2, 3, 4):
        jobs.handle(OTHER.peer, plan(job, generation), NOTHING)
    assert heard == [1, 3, 4]


def test_publishing_needs_the_right_to_train() -> None:
    with pytest.raises(FailureError, match="--may train"):
        Jobs(FakeNode(OTHER)).publish(manifest())


def test_cancelling_needs_the_author_or_an_organiser(node: FakeNode) -> None:
    mine = Jobs(FakeNode(OTHER))
    job = learn(mine, sender=ME)
    with pytest.raises(FailureError, match="only its author"):
        mine.cancel(job)


def test_a_job_is_found_by_the_beginning_of_its_id(jobs: Jobs) -> None:
    job = learn(jobs)
    assert jobs.find(job.id[:6].upper()) is job
    with pytest.raises(MisuseError, match=f"known here: {job.id[:8]}"):
        jobs.find("0")
    learn(jobs, announced(created=2.0))
    with pytest.raises(MisuseError, match="give more characters"):
        jobs.find("")


@contextmanager
def most_jobs(monkeypatch: pytest.MonkeyPatch, count: int) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr(module, "MAX_JOBS", count)
        yield


def test_the_oldest_ended_job_makes_room_and_running_ones_never_do(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    forgotten: list[Job] = []
    jobs.on_forget.append(forgotten.append)
    first, second = learn(jobs, announced(created=1.0)), learn(jobs, announced(created=2.0))
    with most_jobs(monkeypatch, 2):
        assert not jobs.handle(OTHER.peer, announced(created=3.0), NOTHING)
        assert jobs.all() == (first, second)
        jobs.change(second, state="done", sentence="x")
        learn(jobs, announced(created=3.0))
    assert forgotten == [second]
    assert jobs.get(first.id) is first


@pytest.mark.parametrize("limit", ["MAX_AUTHOR_JOBS", "MAX_AUTHOR_BYTES"])
def test_one_author_cannot_take_the_room_of_others(
    jobs: Jobs, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = learn(jobs)
    monkeypatch.setattr(module, limit, 1 if limit == "MAX_AUTHOR_JOBS" else len(first.envelope) + 10)
    assert not jobs.handle(OTHER.peer, announced(created=2.0), NOTHING)  # who tells of it may know others
    assert jobs.all() == (first,)
    assert learn(jobs, announced(by=ME, created=3.0)) in jobs.all()
    jobs.change(first, state="failed", sentence="x")
    learn(jobs, announced(created=2.0))


def test_what_is_signed_for_a_job_that_nobody_knows_is_dropped_before_its_signature_is_checked(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = learn(jobs)
    jobs.handle(OTHER.peer, outcome(ended.id), NOTHING)
    monkeypatch.setattr(module, "read_signed", None)
    for job in ("a" * 52, ended.id):
        for message in (cancelled(OTHER, job), outcome(job, by=OTHER)):
            assert jobs.handle(OTHER.peer, message, NOTHING) == (job == ended.id)
    assert ended.state == "done"


def test_a_fault_in_what_listens_ends_the_job_and_nothing_else(jobs: Jobs, node: FakeNode) -> None:
    def broken(job: Job) -> None:
        raise ZeroDivisionError(job.id)

    jobs.on_job.append(broken)
    job = learn(jobs)
    assert node.ended == [(job.id, f"a fault in this program, see its log: ZeroDivisionError: {job.id}")]


def test_a_job_that_does_not_fit_together_is_not_published() -> None:
    optimizer = Optimizer(
        kind="adamw", lr=0.1, betas=(1.5, 0.9), schedule=Schedule(kind="constant", warmup=0, floor=0.0)
    )
    with pytest.raises(FailureError, match=r"no peer would take this job: .* betas must be below 1"):
        Jobs(FakeNode(ME)).publish(manifest(optimizer=optimizer))


async def test_a_job_rests_while_its_coordinator_is_away_and_goes_on_by_its_word(
    jobs: Jobs, node: FakeNode
) -> None:
    job = learn(jobs)
    async with node.tasks:
        jobs.on_down(COORDINATOR.peer, "left: its user ended it")
        name = COORDINATOR.peer[:8]
        waits = f"waiting for its coordinator, peer {name}, which left: its user ended it, at step 0"
        assert (job.state, job.sentence) == ("waiting", f"{waits}; it goes on once that peer is back")
        jobs.handle(COORDINATOR.peer, notice(job.id, "training"), NOTHING)
        assert (job.state, job.until) == ("training", 0.0)


@pytest.mark.parametrize(("steps", "patience"), [(0, 30.0), (1, AWAY_SECONDS)])
async def test_a_coordinator_that_stays_away_is_waited_for_as_long_as_for_other_peers(
    steps: int, patience: float
) -> None:
    node = FakeNode(ME)
    node.clock = clock = ManualClock(wall=CLOCK.wall())
    jobs = Jobs(node)
    job = learn(jobs, announced(patience=30.0))
    job.step = steps
    async with node.tasks:
        jobs.on_down(COORDINATOR.peer, "left: its user ended it")
        assert job.until == pytest.approx(clock.wall() + patience)
        clock.advance(patience)
        await asyncio.sleep(0)
    assert job.state == "failed"
    assert job.sentence.startswith(f"after {patience:.0f} s: waiting for its coordinator")


def test_a_job_that_was_given_up_is_taken_up_again_by_its_coordinators_word(
    jobs: Jobs, node: FakeNode
) -> None:
    job = learn(jobs)
    begun: list[Job] = []
    jobs.on_job.append(begun.append)
    jobs.change(job, state="failed", sentence="after 60 s: waiting for its coordinator")
    node.take()
    jobs.handle(COORDINATOR.peer, notice(job.id, "waiting"), NOTHING)
    assert (job.state, begun) == ("waiting", [job])
    assert (COORDINATOR.peer, JobFollow(job=job.id, since=0)) in node.take()


async def test_a_notice_revives_no_job_whose_author_was_revoked() -> None:
    authority = Authority.create("ours", public=False, now=CLOCK.wall())
    me, author, coordinator = (member(authority=authority) for _ in range(3))
    ours = FakeNode(me)
    jobs = Jobs(ours)
    message = announced(by=author, swarm=me.swarm, council=(coordinator.peer,))
    job = learn(jobs, message, sender=coordinator)
    heard: list[Job] = []
    jobs.on_job.append(heard.append)
    authority.revoke(peers=[author.peer], invites=[], now=CLOCK.wall())
    known = authority.revocations
    assert ours.revocations.learn_all(known.lists, known.epoch_key)
    jobs.drop_revoked()
    said = (job.state, job.sentence)
    assert said == ("cancelled", f"its author {author.peer[:8]} was revoked")
    jobs.handle(coordinator.peer, notice(job.id, "training", 3), NOTHING)
    assert (job.state, job.sentence) == said
    assert heard == []
