"""A job that loses a holder goes on from its last line, and comes to the bits of a run that lost nobody."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from swarm.protocol import lines
from swarm.protocol.patience import AWAY_SECONDS
from swarm.services.job import Job
from swarm.services.training.author import PreparedJob, prepare_job
from swarm.services.training.node import TrainingNode
from swarm.services.training.verify import Trained, verify
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.sizing import memory_of
from swarm.train.device import DeviceThread
from swarm.train.job import TrainingJob
from swarm.train.optimizer import SGD, AdamW, Cosine
from swarm.wire.records.plan import Plan

MakeJob = Callable[..., TrainingJob]
STEPS = 60


@pytest.fixture
def quick_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines several times a second."""
    monkeypatch.setattr(lines, "SNAPSHOT_SECONDS", 0.1)
    monkeypatch.setattr(lines, "LEAD_SECONDS", 0.1)
    monkeypatch.setattr(lines, "REST", 0.0)


async def lined(cluster: Cluster, coordinator: TrainingNode, job: Job) -> None:
    """Return once the coordinator has a line of the job."""
    await cluster.until(lambda: (coordinator.jobs.find(job.id).kept or 0) > 0)


async def begun(cluster: Cluster, prepared: PreparedJob, peers: int) -> tuple[Job, list[TrainingNode]]:
    """A job in the middle of training, as its author sees it, and the peers, its coordinator first."""
    await cluster.add_bootstrap()
    memory = memory_of(prepared, peers)
    nodes = [await cluster.add_peer(memory=memory) for _ in range(peers)]
    author = await cluster.add_author()
    job = await author.author.publish(prepared, patience=60.0)
    await cluster.until(lambda: job.step >= 2)
    return job, sorted(nodes, key=lambda node: node.identity.peer != job.coordinator)


async def planned_to(cluster: Cluster, job: Job, holder: TrainingNode, *, after: int = 0) -> Plan:
    """The job's plan, once its author knows one after that generation that gives ``holder`` stages."""

    def given() -> Plan | None:
        plan, peer = job.plan, holder.identity.peer
        told = plan is not None and plan.generation > after
        return plan if plan and told and any(stage.holder == peer for stage in plan.stages) else None

    await cluster.until(lambda: given() is not None)
    plan = given()
    assert plan is not None
    return plan


async def identical(
    cluster: Cluster, prepared: PreparedJob, job: Job, by: TrainingNode, folder: Path
) -> bool:
    """Whether losses and weights are those of one stage that nobody disturbed."""
    await cluster.until(lambda: job.ended)
    assert (job.state, job.sentence) == ("done", "the trained weights are in the swarm")
    weights = folder / "weights.safetensors"
    await by.export(job.id, weights)
    trained = Trained(losses=job.losses, validations=job.validations, weights=weights)
    async with DeviceThread(torch.device("cpu")) as device:
        found = await device.run(verify, prepared, trained, torch.device("cpu"), cancelled=lambda: False)
    return found.identical


@pytest.mark.parametrize(
    "optimizer",
    [AdamW(lr=1e-2, schedule=Cosine(warmup=2), clip_norm=0.5), SGD(lr=0.05, momentum=0.9)],
    ids=["adamw", "sgd"],
)
async def test_a_lost_stage_is_loaded_from_the_last_line_by_somebody_else(
    tmp_path: Path, make_job: MakeJob, quick_lines: None, optimizer: AdamW | SGD
) -> None:
    prepared = prepare_job(make_job(steps=STEPS, optimizer=optimizer, ema=0.9, validate_every=7))
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        job, [coordinator, leaver, *_] = await begun(cluster, prepared, 3)
        await lined(cluster, coordinator, job)
        await cluster.end(leaver)
        await cluster.until(lambda: job.state == "waiting")
        newcomer = await cluster.add_peer(memory=memory_of(prepared, 3))
        assert (await planned_to(cluster, job, newcomer)).step > 0
        assert await identical(cluster, prepared, job, newcomer, tmp_path)
        assert len(job.losses) == STEPS


async def test_before_there_is_a_line_a_job_that_loses_a_holder_begins_again(
    tmp_path: Path, make_job: MakeJob
) -> None:
    prepared = prepare_job(make_job(steps=STEPS))
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        job, [coordinator, leaver] = await begun(cluster, prepared, 2)
        await cluster.end(leaver)
        newcomer = await cluster.add_peer(memory=memory_of(prepared, 2))
        assert (await planned_to(cluster, job, newcomer)).step == 0
        assert await identical(cluster, prepared, job, coordinator, tmp_path)


async def test_a_coordinator_that_is_started_again_goes_on_from_its_line(
    tmp_path: Path, make_job: MakeJob, quick_lines: None
) -> None:
    prepared = prepare_job(make_job(steps=STEPS, ema=0.9, validate_every=7))
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        job, [coordinator, other, *_] = await begun(cluster, prepared, 2)
        await lined(cluster, coordinator, job)
        await cluster.end(coordinator)
        await cluster.until(lambda: not other.held())
        name = coordinator.identity.peer[:8]
        waits = f"waiting for its coordinator, peer {name}, which left: its program ended, at step {job.step}"
        assert (job.state, job.sentence) == ("waiting", f"{waits}; it goes on once that peer is back")
        assert job.until > cluster.clock.wall() + 0.9 * AWAY_SECONDS
        again = await cluster.start_again(coordinator)
        assert (await planned_to(cluster, job, again, after=1)).step > 0
        assert await identical(cluster, prepared, job, again, tmp_path)
