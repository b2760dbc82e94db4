"""A member with a program of its own, over real links: it says what its rights do not allow, and what is not
true. The link that it said so on ends with a word why; nobody else notices."""

import threading
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from msgspec.structs import asdict, replace

from swarm.errors import FailureError, LinkLostError, RemoteRefusalError
from swarm.identity.envelope import CANCELLATION, MANIFEST, OUTCOME, PLAN, Domain, seal
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import CONTRIBUTE_ONLY, Right
from swarm.net.config import PoolConfig
from swarm.net.link import Link
from swarm.net.pool import Pool
from swarm.protocol.pipeline_events import Forward
from swarm.protocol.trust import MAX_OFFENCES, MAX_STRIKES
from swarm.services.job import Job
from swarm.services.node import Node
from swarm.services.training.author import prepare_job
from swarm.services.training.node import TrainingNode
from swarm.services.training.stage_work import Made, StageWork
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.hellos import NO_CAPABILITIES
from swarm.testing.pools import PATIENCE_SECONDS, Recorder
from swarm.testing.sizing import memory_of
from swarm.train.job import TrainingJob
from swarm.wire.limits import MIB
from swarm.wire.messages.base import Message
from swarm.wire.messages.blocks import BlockMissing, BlockRequest
from swarm.wire.messages.coordination import PlanIssue, PlanStart, StageFailed, StageReady, StageResult
from swarm.wire.messages.jobs import JobAnnounce, JobCancel, JobNotice, JobOutcome, JobProgress, JobValidation
from swarm.wire.messages.pipeline import BoundaryTensor, Fence, FenceRefused, StepRecord
from swarm.wire.records.manifest import Cancellation, blobs_of
from swarm.wire.records.outcome import Outcome
from swarm.wire.records.plan import Plan, StagePlan
from swarm.wire.tensors import TensorHeader

MakeJob = Callable[..., TrainingJob]
PLENTY = 64 * MIB
NOWHERE = "a" * 52
LIE = 99.0
PAUSE = 3


class Mallory:
    """A member's certificates and links, without any of our services."""

    def __init__(self, cluster: Cluster, folder: Path, *rights: Right) -> None:
        now = cluster.clock.wall()
        invite = cluster.authority.issue(label="mallory", rights=CONTRIBUTE_ONLY | set(rights), now=now)
        self.identity = Identity.join(invite, key=PrivateKey.generate(), now=now)
        self.identity.save(folder)
        self.heard = Recorder()
        networks = cluster._networks("10.0.9.9")
        self.pool = Pool(
            PoolConfig(
                tls=self.identity.tls_files(folder),
                role="peer",
                capabilities=NO_CAPABILITIES,
                program="mallory",
                listen=None,
            ),
            identity=self.identity,
            network=networks.streams,
            clock=cluster.clock,
            handlers=self.heard,
        )
        self._stack = AsyncExitStack()
        self._asked = 0

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.pool)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def link(self, node: Node) -> Link:
        return await self.pool.dial(node.addresses, expect=node.identity.peer)

    async def told(self, node: Node, message: Message, payload: bytes = b"") -> str:
        """Say it to ``node`` on a link; returns the word with which that ended."""
        link = await self.link(node)
        before = len(self.heard.downs)
        link.post(message, payload)
        await self.heard.until(lambda heard: len(heard.downs) > before)
        return self.heard.downs[-1][1]

    async def delivered(self, node: Node, message: Message, payload: bytes = b"") -> None:
        """Say it to ``node``; returns once ``node`` has taken it, or ended the link for it."""
        link, downs = await self.link(node), len(self.heard.downs)
        sending = link.post(message, payload)
        with suppress(LinkLostError):
            await sending.wait()
        self._asked += 1
        answer = BlockMissing(request=self._asked)
        link.post(BlockRequest(request=self._asked, digest=NOWHERE))
        await self.heard.until(lambda heard: (answer, b"") in heard.messages or len(heard.downs) > downs)

    async def has_been_given(self, node: Node, name: str) -> bool:
        """Whether ``node`` gives the block when asked for it."""
        link = await self.link(node)
        self._asked += 1
        number, before = self._asked, len(self.heard.messages)
        link.post(BlockRequest(request=number, digest=name))
        await self.heard.until(
            lambda heard: any(getattr(m, "request", 0) == number for m, _ in heard.messages[before:])
        )
        return (BlockMissing(request=number), b"") not in self.heard.messages[before:]

    def signed(self, domain: Domain, record: Any) -> bytes:
        return seal(self.identity, domain, msgspec.msgpack.encode(record))


@dataclass(frozen=True)
class Scene:
    """A bootstrap node, a peer that offers too little, and an author with a job that waits for more."""

    cluster: Cluster
    door: Node
    peer: TrainingNode
    author: TrainingNode
    job: Job

    @classmethod
    async def set(cls, cluster: Cluster, job: TrainingJob) -> "Scene":
        door = await cluster.add_bootstrap()
        peer = await cluster.add_peer(memory=1)
        author = await cluster.add_author()
        await cluster.until(lambda: peer.identity.peer in author.links)
        published = await author.author.publish(prepare_job(job), patience=60.0)
        await cluster.until(lambda: all(len(node.jobs.all()) == 1 for node in (door, peer)))
        return cls(cluster, door, peer, author, published)

    def untouched(self) -> None:
        for node in (self.door, self.peer, self.author):
            (job,) = node.jobs.all()
            assert (job.id, job.state, job.losses, job.plan) == (self.job.id, "waiting", [], None)
        assert self.author.identity.peer in self.peer.links


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "swarm", networks=memory_networks())


def stage(holder: str) -> StagePlan:
    return StagePlan(
        first=0, last=1, evaluation=(), holder=holder, incarnation=1, depth=1, memory=PLENTY, seconds=0.0
    )


def publishes(mallory: Mallory, scene: Scene) -> Message:
    return JobAnnounce(manifest=mallory.signed(MANIFEST, replace(scene.job.manifest, name="mine")))


def alters_a_manifest(mallory: Mallory, scene: Scene) -> Message:
    form, domain, payload, chain, signature = msgspec.msgpack.decode(scene.job.envelope)
    payload = payload.replace(b"tied", b"tidy")
    return JobAnnounce(manifest=msgspec.msgpack.encode([form, domain, payload, chain, signature]))


def cancels(mallory: Mallory, scene: Scene) -> Message:
    wish = Cancellation(job=scene.job.id, wall=scene.cluster.clock.wall())
    return JobCancel(cancellation=mallory.signed(CANCELLATION, wish))


def plans(mallory: Mallory, scene: Scene) -> Message:
    plan = Plan(
        format=1,
        job=scene.job.id,
        generation=9,
        step=0,
        stages=(stage(scene.peer.identity.peer),),
        explanation=(),
    )
    return PlanIssue(plan=mallory.signed(PLAN, plan))


def ends(mallory: Mallory, scene: Scene) -> Message:
    outcome = Outcome(
        format=1, job=scene.job.id, state="failed", sentence="", wall=1.0, step=0, held_out=None, weights=()
    )
    return JobOutcome(outcome=mallory.signed(OUTCOME, outcome))


def sends_a_manifest_as_a_cancellation(mallory: Mallory, scene: Scene) -> Message:
    wish = Cancellation(job=scene.job.id, wall=1.0)
    return JobCancel(cancellation=mallory.signed(MANIFEST, wish))


@pytest.mark.parametrize(
    ("lie", "answer"),
    [
        (publishes, "published a job without the right to"),
        (alters_a_manifest, "the signature of the manifest does not match"),
        (cancels, "cancelled a job that is not its own"),
        (plans, "sent a plan that the job's coordinator did not make"),
        (ends, "is not signed by its coordinator"),
        (sends_a_manifest_as_a_cancellation, "is signed as manifest, not as cancellation"),
    ],
)
async def test_what_a_member_may_not_sign_costs_its_link_and_changes_nothing(
    cluster: Cluster,
    tmp_path: Path,
    make_job: MakeJob,
    lie: Callable[[Mallory, Scene], Message],
    answer: str,
) -> None:
    async with cluster:
        scene = await Scene.set(cluster, make_job())
        async with Mallory(cluster, tmp_path / "mallory", Right.ADMIT) as mallory:
            for node in (scene.door, scene.peer, scene.author):
                assert answer in await mallory.told(node, lie(mallory, scene))
            scene.untouched()


async def test_a_trainer_cannot_cancel_what_another_published_and_an_organiser_can(
    cluster: Cluster, tmp_path: Path, make_job: MakeJob
) -> None:
    async with cluster:
        scene = await Scene.set(cluster, make_job())
        async with Mallory(cluster, tmp_path / "trainer", Right.TRAIN) as trainer:
            assert "not its own" in await trainer.told(scene.peer, cancels(trainer, scene))
            scene.untouched()
        async with Mallory(cluster, tmp_path / "organiser", Right.ORGANISE) as organiser:
            (await organiser.link(scene.peer)).post(cancels(organiser, scene))
            await cluster.until(lambda: scene.job.state == "cancelled")


async def test_what_a_member_says_of_a_job_that_it_has_no_part_in_counts_nowhere(
    cluster: Cluster, tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forged losses, notices, failures, results, records and tensors; the job pauses at the step of these."""
    monkeypatch.setattr("swarm.protocol.trust.MAX_OFFENCES", 100)  # or it would not get to say them all
    go_on = threading.Event()
    forward = StageWork.forward

    def pausing(work: StageWork, asked: Forward, items: Any) -> Made:
        if asked.step >= PAUSE:
            go_on.wait(PATIENCE_SECONDS)
        return forward(work, asked, items)

    prepared = prepare_job(make_job())
    async with cluster:
        await cluster.add_bootstrap()
        peers = [await cluster.add_peer(memory=memory_of(prepared, 2)) for _ in range(2)]
        author = await cluster.add_author()
        nodes = [*peers, author]
        await cluster.until(lambda: len(author.links) == 3)
        with monkeypatch.context() as patch:
            patch.setattr(StageWork, "forward", pausing)
            job = await author.author.publish(prepared, patience=60.0)
            await cluster.until(lambda: all(node.jobs.get(job.id) for node in nodes))
            jobs = [known for node in nodes if (known := node.jobs.get(job.id))]
            await cluster.until(lambda: all(len(known.losses) == PAUSE for known in jobs))
            try:
                async with Mallory(cluster, tmp_path / "mallory", Right.TRAIN) as mallory:
                    for node in nodes:
                        for message, payload in forgeries(job):
                            await mallory.delivered(node, message, payload)
                            assert [(j.state, len(j.losses)) for j in jobs] == [("training", PAUSE)] * 3
            finally:
                go_on.set()
            await cluster.until(lambda: all(known.ended for known in jobs))
        for known in jobs:
            assert (known.state, known.step) == ("done", 6), known.sentence
            assert len(known.losses) == 6
            assert LIE not in known.losses
            assert [validation.step for validation in known.validations] in ([], [6])


def forgeries(job: Job) -> list[tuple[Message, bytes]]:
    plan = job.plan
    assert plan is not None
    assert len(plan.stages) == 2
    last, generation = len(plan.stages) - 1, plan.generation
    fence = Fence(
        job=job.id,
        step=PAUSE,
        phase="train",
        source=0,
        target=last,
        sender=plan.stages[0].incarnation,
        receiver=plan.stages[last].incarnation,
    )
    header = TensorHeader("float32", (4, 6, 12), (72, 12, 1), 0)
    back = replace(fence, source=last, target=0, sender=fence.receiver, receiver=fence.sender)
    record = StepRecord(fence=back, outcome="failed", clip=1.0, norm=0.0, loss=LIE, cause="mallory")
    tensor = BoundaryTensor(fence=fence, micro_batch=0, tensor=7, direction="forward", header=header)
    progress = JobProgress(
        job=job.id,
        incarnation=fence.receiver,
        step=fence.step,
        outcome="applied",
        clip=1.0,
        norm=1.0,
        loss=LIE,
        cause="",
    )
    notice = JobNotice(
        job=job.id, state="finishing", sentence="mallory", since=1.0, until=0.0, step=0, replicas=0
    )
    return [
        (progress, b""),
        (JobValidation(**asdict(replace(progress, outcome="evaluated")), metric=LIE), b""),
        (notice, b""),
        (StageReady(job=job.id, generation=generation, stage=last), b""),
        (StageFailed(job=job.id, generation=generation, stage=last, sentence="mallory"), b""),
        (StageResult(job=job.id, generation=generation, stage=last, tensors=()), b""),
        (PlanStart(job=job.id, generation=generation), b""),
        (FenceRefused(fence=fence, generation=generation + 1), b""),
        (record, b""),
        (tensor, bytes(header.payload_bytes)),
    ]


async def test_refusals_of_what_nobody_sent_end_the_link(
    cluster: Cluster, tmp_path: Path, make_job: MakeJob
) -> None:
    async with cluster:
        scene = await Scene.set(cluster, make_job())
        fence = Fence(job=scene.job.id, step=0, phase="train", source=0, target=1, sender=1, receiver=1)
        async with Mallory(cluster, tmp_path / "mallory") as mallory:
            link = await mallory.link(scene.peer)
            for _ in range(2 * MAX_STRIKES):
                link.post(FenceRefused(fence=fence, generation=2))
            await mallory.heard.until(lambda heard: bool(heard.downs))
            assert "nobody here takes a FenceRefused" in mallory.heard.downs[0][1]
        scene.untouched()


async def test_who_breaks_the_protocol_again_and_again_is_out_over_restarts(
    cluster: Cluster, tmp_path: Path, make_job: MakeJob
) -> None:
    async with cluster:
        scene = await Scene.set(cluster, make_job())
        async with Mallory(cluster, tmp_path / "mallory") as mallory:
            for _ in range(MAX_OFFENCES + 1):
                assert "without the right to" in await mallory.told(scene.peer, publishes(mallory, scene))
            scene.untouched()
            for node in (scene.peer, await again(cluster, scene.peer)):
                with pytest.raises(RemoteRefusalError, match=r"last thus: .* without the right to") as caught:
                    await mallory.link(node)
                assert caught.value.code == "banned"
            assert await mallory.link(scene.door), "a ban is each node's own"


async def again(cluster: Cluster, node: TrainingNode) -> TrainingNode:
    await cluster.end(node)
    return await cluster.start_again(node)


async def test_weights_go_to_whom_the_manifest_names_and_to_nobody_else(
    cluster: Cluster, tmp_path: Path, make_job: MakeJob
) -> None:
    async with cluster:
        door = await cluster.add_bootstrap()
        coordinator = await cluster.add_peer(memory=PLENTY)
        reader, member = await cluster.add_author(), await cluster.add_author()
        author = await cluster.add_author()
        await cluster.until(lambda: all(len(node.links) == 4 for node in (author, reader, member)))
        prepared = prepare_job(make_job(export_to=[reader.identity.peer]))
        job = await author.author.publish(prepared, patience=60.0)
        await cluster.until(lambda: all(n.jobs.get(job.id) for n in (door, reader, member)))
        await cluster.until(lambda: all(n.jobs.all()[0].state == "done" for n in (reader, member, author)))
        assert (await reader.export(job.id, tmp_path / "w.safetensors")).tensors > 0
        with pytest.raises(FailureError, match=r"the weights of job \w+ are for its author \w+ and \w+: ask"):
            await member.export(job.id, tmp_path / "stolen.safetensors")
        initial = {name for blob in blobs_of(job.manifest) for name in blob.blocks}
        trained = [name for tensor in job.weights for name in tensor.blob.blocks if name not in initial]
        assert trained
        async with Mallory(cluster, tmp_path / "mallory", Right.TRAIN) as mallory:
            await cluster.end(coordinator)
            for node in (await cluster.start_again(coordinator), reader, author):
                assert [await mallory.has_been_given(node, name) for name in trained] == [False] * len(
                    trained
                )
            assert await mallory.has_been_given(author, min(initial)), "what members need to train"


async def test_a_claim_of_much_memory_is_one_lot_among_the_others(
    cluster: Cluster, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[list[str]] = []

    def draw(offering: list[str]) -> str:
        drawn.append(sorted(offering))
        return offering[0]

    async with cluster:
        await cluster.add_bootstrap()
        peers = [await cluster.add_peer(memory=memory) for memory in (1, 2**50)]
        author = await cluster.add_author()
        await cluster.until(lambda: len(author.links) == 3)
        monkeypatch.setattr("swarm.services.training.author.secrets.choice", draw)
        await author.author.publish(prepare_job(make_job()), patience=60.0)
    assert drawn == [sorted(peer.identity.peer for peer in peers)]
