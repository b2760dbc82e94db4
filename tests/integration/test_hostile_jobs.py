"""Jobs that are not what they say, and faults of our own in the work for one: the job ends, no node does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from swarm.data.blobs import put_blob
from swarm.identity.envelope import PLAN, seal
from swarm.ids import PeerId, short
from swarm.protocol.pipeline_events import Forward
from swarm.services.job import Job
from swarm.services.node import Node
from swarm.services.training.author import PreparedJob, prepare_job
from swarm.services.training.node import TrainingNode
from swarm.services.training.stage_work import Made, StageWork
from swarm.testing.cluster import Cluster, memory_networks
from swarm.train.job import TrainingJob
from swarm.wire.messages.coordination import PlanIssue
from swarm.wire.records.blobs import Blob
from swarm.wire.records.manifest import Manifest
from swarm.wire.records.plan import Plan, StagePlan

MakeJob = Callable[..., TrainingJob]
PLENTY = 64 << 20


class Swarm:
    """A peer, its author, and a manifest to spoil."""

    def __init__(self, cluster: Cluster, peer: TrainingNode, author: TrainingNode, job: PreparedJob) -> None:
        self.cluster, self.peer, self.author, self.job = cluster, peer, author, job

    @classmethod
    async def start(cls, cluster: Cluster, job: PreparedJob, *, accepts: str = "any") -> "Swarm":
        await cluster.add_bootstrap()
        peer = await cluster.add_peer(memory=PLENTY, accepts=accepts)
        author = await cluster.add_author()
        await cluster.until(lambda: peer.identity.peer in author.links)
        return cls(cluster, peer, author, job)

    def manifest(self, coordinator: PeerId, **changes: Any) -> Manifest:
        with self.author.exchange.store.holding() as held:
            made = self.author.author._manifest(self.job, coordinator, 60.0, held)
        return replace(made, **changes)

    async def trains(self) -> None:
        """A good job trains here."""
        job = await self.author.author.publish(self.job, patience=60.0)
        await self.cluster.until(lambda: job.ended)
        assert job.state == "done", job.sentence

    def issue(self, job: Job, operators: int, generation: int = 1, **changes: Any) -> None:
        """The author as a coordinator that plans what it likes."""
        stage: dict[str, Any] = {
            "first": 0,
            "last": operators,
            "evaluation": (),
            "holder": self.peer.identity.peer,
            "incarnation": generation,
            "depth": 1,
            "memory": PLENTY,
            "seconds": 0.0,
        }
        plan = Plan(
            format=1,
            job=job.id,
            generation=generation,
            step=0,
            stages=(StagePlan(**(stage | changes)),),
            explanation=(),
        )
        envelope = seal(self.author.identity, PLAN, msgspec.msgpack.encode(plan))
        self.author.send(self.peer.identity.peer, PlanIssue(plan=envelope))


def heard(node: Node, text: str) -> bool:
    return any(text in event.sentence for event in node.story.events())


async def test_a_dataset_that_lies_about_its_blocks_ends_its_job_only(
    tmp_path: Path, make_job: MakeJob
) -> None:
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        swarm = await Swarm.start(cluster, prepare_job(make_job()))
        coordinator = swarm.peer.identity.peer
        good = swarm.manifest(coordinator)
        field = good.dataset.fields[0]
        store = swarm.author.exchange.store
        short = put_blob(store, np.zeros(field.blob.size - 8, np.uint8).data)
        blob = Blob(size=field.blob.size, blocks=short.blocks)
        dataset = replace(good.dataset, fields=(replace(field, blob=blob), *good.dataset.fields[1:]))
        job = swarm.author.jobs.publish(replace(good, dataset=dataset))
        await cluster.until(lambda: job.ended)
        assert job.state == "failed"
        assert "a block of a dataset has another length" in job.sentence
        assert swarm.peer.held() == ()
        await swarm.trains()


async def test_a_fault_of_our_own_ends_the_job_that_met_it_only(
    tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(work: StageWork, asked: Forward, items: Any) -> Made:
        raise ZeroDivisionError(f"step {asked.step}")

    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        swarm = await Swarm.start(cluster, prepare_job(make_job()))
        with monkeypatch.context() as patch:
            patch.setattr(StageWork, "forward", broken)
            job = await swarm.author.author.publish(swarm.job, patience=60.0)
            await cluster.until(lambda: job.ended)
        assert job.state == "failed"
        assert "a fault in this program, see its log: ZeroDivisionError: step 0" in job.sentence
        await cluster.until(lambda: swarm.peer.jobs.all()[0].ended)
        status = swarm.peer.status()
        assert status.jobs[0].stages == ()  # nobody loads or holds any
        assert status.waiting is not None
        assert status.waiting.reason == "a job that needs this peer"
        assert status.waiting.since > swarm.peer.since
        await swarm.trains()


@pytest.mark.parametrize(
    ("accepts", "changes", "complaint"),
    [
        ("mine", {}, "this peer gives itself to other jobs"),
        ("any", {"memory": 2**53 - 1}, "are more than the 64.0 MiB left here"),
        ("any", {"memory": 1}, "it counts 1 B for a stage that needs"),
        ("any", {"last": 3}, "does not fit the job's graph"),
    ],
)
async def test_a_plan_that_takes_more_than_was_offered_is_refused(
    tmp_path: Path, make_job: MakeJob, accepts: str, changes: dict[str, Any], complaint: str
) -> None:
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        swarm = await Swarm.start(cluster, prepare_job(make_job()), accepts=accepts)
        job = swarm.author.jobs.publish(swarm.manifest(swarm.author.identity.peer))
        await cluster.until(lambda: bool(swarm.peer.jobs.all()))
        swarm.issue(job, len(swarm.job.captured.train.operators), **changes)
        await cluster.until(lambda: heard(swarm.peer, complaint))
        swarm.peer.set_paused(paused=True)
        swarm.issue(job, len(swarm.job.captured.train.operators), generation=2)
        await cluster.until(lambda: heard(swarm.peer, f"{short(job.id)}: this peer is paused by its user"))
        assert swarm.peer.held() == ()


async def test_a_plan_that_is_never_started_gives_the_memory_back(
    tmp_path: Path, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("swarm.services.training.holder.LOADING_SECONDS", 0.2)
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        swarm = await Swarm.start(cluster, prepare_job(make_job()))
        job = swarm.author.jobs.publish(swarm.manifest(swarm.author.identity.peer))
        await cluster.until(lambda: bool(swarm.peer.jobs.all()))
        swarm.issue(job, len(swarm.job.captured.train.operators))
        await cluster.until(lambda: heard(swarm.peer, "its coordinator did not start the job within"))
        assert swarm.peer.held() == ()
        await swarm.trains()
