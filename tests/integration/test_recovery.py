"""Jobs that lose a holder, their coordinator or everybody go on from their last line, to undisturbed bits."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.protocol import lines, offers
from swarm.protocol.patience import AWAY_SECONDS
from swarm.services.job import Job
from swarm.services.line_files import LINES_FOLDER, NEWEST
from swarm.services.node import BLOCKS_FOLDER
from swarm.services.training.node import TrainingNode
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.sizing import memory_of
from swarm.train.job import TrainingJob
from swarm.train.optimizer import SGD, AdamW, Cosine
from swarm.wire.records.plan import Plan
from tests.integration.trials import Trial, came_to, trial_of

MakeJob = Callable[..., TrainingJob]
STEPS = 60
ADAMW = AdamW(lr=1e-2, schedule=Cosine(warmup=2), clip_norm=0.5)


TRIALS: dict[AdamW | SGD, Trial] = {}
"""By optimizer: to capture and train takes longer than a test."""


def trained(make_job: MakeJob, optimizer: AdamW | SGD) -> Trial:
    """The job under ``optimizer``."""
    if optimizer in TRIALS:
        return TRIALS[optimizer]
    job = make_job(steps=STEPS, optimizer=optimizer, ema=0.9, validate_every=7)
    return TRIALS.setdefault(optimizer, trial_of(job))


@pytest.fixture
def trial(make_job: MakeJob) -> Trial:
    return trained(make_job, ADAMW)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans soon after the last offer, lines several times a second."""
    monkeypatch.setattr(offers, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(lines, "SNAPSHOT_SECONDS", 0.1)
    monkeypatch.setattr(lines, "LEAD_SECONDS", 0.1)
    monkeypatch.setattr(lines, "REST", 0.0)


async def begun(cluster: Cluster, trial: Trial, peers: int) -> tuple[Job, list[TrainingNode]]:
    """A job in the middle of training, as its author sees it, and the peers, its coordinator first."""
    await cluster.add_bootstrap()
    memory = memory_of(trial.prepared, peers)
    nodes = [await cluster.add_peer(memory=memory) for _ in range(peers)]
    author = await cluster.add_author()
    job = await author.author.publish(trial.prepared, patience=60.0)
    await cluster.until(lambda: job.step >= 2)
    return job, sorted(nodes, key=lambda node: node.identity.peer != job.coordinator)


async def lined(cluster: Cluster, coordinator: TrainingNode, job: Job, *, after: int = 0) -> None:
    """Return once the coordinator has a line of the job after step ``after``."""
    await cluster.until(lambda: (coordinator.jobs.find(job.id).kept or 0) > after)


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


@pytest.mark.parametrize("optimizer", [ADAMW, SGD(lr=0.05, momentum=0.9)], ids=["adamw", "sgd"])
async def test_a_lost_stage_is_loaded_from_the_last_line_by_somebody_else(
    tmp_path: Path, make_job: MakeJob, optimizer: AdamW | SGD
) -> None:
    trial = trained(make_job, optimizer)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        job, [coordinator, leaver] = await begun(cluster, trial, 2)
        await lined(cluster, coordinator, job)
        await cluster.end(leaver)
        await cluster.until(lambda: job.state == "waiting")
        newcomer = await cluster.add_peer(memory=memory_of(trial.prepared, 2))
        assert (await planned_to(cluster, job, newcomer)).step > 0
        await came_to(cluster, trial, job, newcomer, tmp_path)


async def test_before_there_is_a_line_a_job_that_loses_a_holder_begins_again(
    tmp_path: Path, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "SNAPSHOT_SECONDS", 600.0)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        job, [coordinator, leaver] = await begun(cluster, trial, 2)
        await cluster.end(leaver)
        newcomer = await cluster.add_peer(memory=memory_of(trial.prepared, 2))
        assert (await planned_to(cluster, job, newcomer)).step == 0
        await came_to(cluster, trial, job, coordinator, tmp_path)


async def test_a_coordinator_that_is_started_again_goes_on_from_its_line(
    tmp_path: Path, trial: Trial
) -> None:
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        job, [coordinator, other] = await begun(cluster, trial, 2)
        await lined(cluster, coordinator, job)
        await cluster.end(coordinator)
        await cluster.until(lambda: not other.held() and job.state == "waiting")
        name = coordinator.identity.peer[:8]
        waits = f"waiting for its coordinator, peer {name}, which left: its program ended, at step {job.step}"
        assert (job.state, job.sentence) == ("waiting", f"{waits}; it goes on once that peer is back")
        assert job.until > cluster.clock.wall() + 0.9 * AWAY_SECONDS
        again = await cluster.start_again(coordinator)
        assert (await planned_to(cluster, job, again, after=1)).step > 0
        await came_to(cluster, trial, job, again, tmp_path)


def nothing(coordinator: TrainingNode, job: Job) -> str:
    """Leave the coordinator's home as it is."""
    return ""


def tear_the_record(coordinator: TrainingNode, job: Job) -> str:
    path = coordinator.config.folder / LINES_FOLDER / f"{job.id}{NEWEST}"
    path.write_bytes(path.read_bytes()[:-1])
    return f"of job {job.id[:8]} its newest line is lost: {path} is damaged"


def damage_blocks_that_others_have(coordinator: TrainingNode, job: Job) -> str:
    paths = list(coordinator.config.folder.parent.glob(f"*/{BLOCKS_FOLDER}/*/*"))
    names = Counter(path.name for path in paths)
    for path in paths:
        if path.is_relative_to(coordinator.config.folder) and names[path.name] > 1:
            path.write_bytes(path.read_bytes()[:-1] + b"?")
    return ""


@pytest.mark.parametrize("harm", [nothing, tear_the_record, damage_blocks_that_others_have])
async def test_all_that_were_off_go_on_in_whatever_order_they_come_back(
    tmp_path: Path, trial: Trial, harm: Callable[[TrainingNode, Job], str]
) -> None:
    shuffled = random.Random(harm.__name__)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        job, [coordinator, *_] = await begun(cluster, trial, 2)
        await lined(cluster, coordinator, job)
        nodes = list(cluster.nodes)
        for node in shuffled.sample(nodes, len(nodes)):
            await cluster.end(node)
        told = harm(coordinator, job)
        order = shuffled.sample(nodes, len(nodes))
        order.sort(key=lambda node: node.config.role == "author")  # who joins nobody ends, unlike the others
        again = {node: await cluster.start_again(node) for node in order}
        back = again[coordinator]
        assert isinstance(back, TrainingNode)
        await came_to(cluster, trial, back.jobs.find(job.id), back, tmp_path)
        await cluster.until(lambda: all(node.jobs.find(job.id).state == "done" for node in again.values()))
        troubles = [event.sentence for event in back.story.events() if event.kind == "trouble"]
        assert [sentence for sentence in troubles if job.id[:8] in sentence] == [told] * bool(told)
