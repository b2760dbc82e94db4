"""The coordinator's service: who may speak, and how often it answers."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from swarm.clock import SystemClock
from swarm.errors import FailureError, RemoteProtocolError
from swarm.ids import JobId, PeerId
from swarm.log import get_log
from swarm.services import coordinator as module
from swarm.services.coordinator import Coordinator
from swarm.services.job import Job
from swarm.services.story import Story
from swarm.testing.manifests import sample_manifest
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import LimitedOffer, Offer, StageReady
from swarm.wire.messages.jobs import JobFollow, JobNotice, JobProgress
from swarm.wire.records.blobs import Blob

ME, FOLLOWER, STRANGER = (PeerId(letter * 32) for letter in "mfs")
JOB = JobId("j" * 52)
NOTHING = memoryview(b"")
BLOB = Blob(size=24, blocks=("q" * 52,))


def job() -> Job:
    manifest = sample_manifest(steps=1000, council=(ME,))
    return Job(id=JOB, envelope=b"x", manifest=manifest, author=STRANGER)


class Sending:
    """Done once the other side reads."""

    def __init__(self, reads: asyncio.Event) -> None:
        self._reads = reads

    async def wait(self) -> None:
        await self._reads.wait()


class World:
    """A node, its register of jobs, its blocks and its lines: only what the coordinator asks of them."""

    def __init__(self) -> None:
        self.identity = cast("Any", type("Identity", (), {"peer": ME}))
        self.clock = SystemClock()
        self.story = Story(self.clock, get_log("test"))
        self.tasks = asyncio.TaskGroup()
        self.links = {FOLLOWER: self}
        self.reads = asyncio.Event()
        self.sent: list[Message] = []
        self.on_job: list[Any] = []
        self.on_cancel: list[Any] = []
        self.on_forget: list[Any] = []
        self.outcomes: list[bytes] = []
        self.fault: Exception | None = None

    def peers(self) -> tuple[PeerId, ...]:
        return ()

    def send(self, peer: PeerId, message: Message, payload: object = b"") -> bool:
        if peer == FOLLOWER:
            self.sent.append(message)
        return True

    def post(self, message: Message) -> Sending:
        self.sent.append(message)
        return Sending(self.reads)

    def has(self, job: Job) -> bool:
        return False

    def changed(self, job: Job) -> None:
        """Nobody listens."""

    async def graphs(self, job: Job) -> Any:
        if self.fault is not None:
            raise self.fault
        await asyncio.Event().wait()

    def end_job(self, job: JobId, sentence: str) -> None:
        raise AssertionError(sentence)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    try:
        async with made.tasks:
            yield made
            raise FailureError("the end of the test")
    except* FailureError:
        pass


def coordinator(world: World, *, coordinates: bool = True) -> Coordinator:
    node = cast("Any", world)
    return Coordinator(node, node, node, node, coordinates=coordinates)


async def turns() -> None:
    """Let every task go on as far as it can."""
    for _ in range(20):
        await asyncio.sleep(0)


def progress(step: int) -> JobProgress:
    return JobProgress(
        job=JOB, incarnation=1, step=step, outcome="applied", clip=1.0, norm=1.0, loss=1.0, cause=""
    )


async def test_who_follows_again_and_again_is_answered_once_and_no_faster_than_it_reads(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CATCH_UP", 4)
    service, followed = coordinator(world), job()
    world.on_job[0](followed)
    service._running[JOB].heard += [progress(step) for step in range(10)]
    assert service.handle(FOLLOWER, JobFollow(job=JOB, since=0), NOTHING)
    for _ in range(100):
        assert not service.handle(FOLLOWER, JobFollow(job=JOB, since=0), NOTHING), "it is charged"
    await asyncio.sleep(0)
    assert [type(message) for message in world.sent] == [JobNotice] + [JobProgress] * 4
    world.reads.set()
    await turns()
    assert FOLLOWER in service._running[JOB].followers
    assert [message for message in world.sent if isinstance(message, JobProgress)] == [
        progress(step) for step in range(10)
    ]
    service.on_down(FOLLOWER, "left")
    assert service.handle(FOLLOWER, JobFollow(job=JOB, since=9), NOTHING)
    assert FOLLOWER in service._running[JOB].catching_up


async def test_who_follows_again_by_another_link_before_the_job_has_begun_hears_all_once(
    world: World,
) -> None:
    service, followed = coordinator(world), job()
    world.on_job[0](followed)
    running = service._running[JOB]
    running.begun.clear()
    running.heard += [progress(step) for step in range(3)]
    for _ in range(2):
        assert service.handle(FOLLOWER, JobFollow(job=JOB, since=0), NOTHING)
        await turns()
        service.on_down(FOLLOWER, "the connection broke")
    assert service.handle(FOLLOWER, JobFollow(job=JOB, since=0), NOTHING)
    running.begun.set()
    await turns()
    world.reads.set()
    await turns()
    assert [message.step for message in world.sent if isinstance(message, JobProgress)] == [0, 1, 2]
    assert FOLLOWER in running.followers


async def test_a_record_that_nobody_waits_for_is_not_kept(world: World) -> None:
    service = coordinator(world)
    world.on_job[0](job())
    for step in range(10):
        assert service.handle(STRANGER, progress(step), NOTHING)
    assert service._running[JOB].heard == []
    assert service._running[JOB].job.losses == []


async def test_what_a_peer_cannot_run_is_part_of_its_offer(world: World) -> None:
    service = coordinator(world)
    world.on_job[0](job())
    limited = LimitedOffer(job=JOB, memory=5, flops=1.0, holding=False, lacks=("aten.gelu.default",))
    assert service.handle(STRANGER, limited, NOTHING)
    assert service.handle(FOLLOWER, Offer(job=JOB, memory=6, flops=1.0, holding=False), NOTHING)
    offers, _ = service._running[JOB].machine._offers.begin_plan(0.0)
    assert {offer.memory: offer.lacks for offer in offers} == {5: {"aten.gelu.default"}, 6: frozenset()}


async def test_what_is_said_of_a_job_that_is_not_coordinated_here_is_taken_by_nobody(world: World) -> None:
    service = coordinator(world, coordinates=False)
    world.on_job[0](job())
    assert service._running == {}
    for message in (
        Offer(job=JOB, memory=1, flops=1.0, holding=False),
        StageReady(job=JOB, generation=1, stage=0),
        JobFollow(job=JOB, since=0),
    ):
        assert not service.handle(STRANGER, message, NOTHING), "it is charged"


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (RemoteProtocolError("not an OP-DAG"), "not an OP-DAG"),
        (RecursionError("too deep"), "a fault in this program, see its log: RecursionError: too deep"),
    ],
)
async def test_what_goes_wrong_with_a_jobs_graphs_fails_the_job(
    world: World, fault: Exception, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Coordinator, "_tell", lambda *_: None)
    world.fault = fault
    service = coordinator(world)
    world.on_job[0](job())
    running = service._running[JOB]
    await turns()
    found = running.machine.statistics()
    assert (found.state, found.sentence) == ("failed", sentence)
    running.job.state = "failed"
    running.wake.set()
