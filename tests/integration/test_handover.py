"""Stages change hands while their job trains, and nobody can tell from the losses or the weights."""

import asyncio
import contextlib
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from swarm.protocol import lines, offers
from swarm.protocol.pipeline_events import Forward
from swarm.services.job import Job
from swarm.services.training.author import PreparedJob, prepare_job
from swarm.services.training.node import TrainingNode
from swarm.services.training.pipeline import StagePipeline, Work
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.sizing import memory_of
from swarm.testing.zoo.jobs import zoo_job
from swarm.train.job import TrainingJob
from swarm.train.optimizer import AdamW, Cosine
from tests.integration.trials import Trial, came_to, trial_of

MakeJob = Callable[..., TrainingJob]
ADAMW = AdamW(lr=1e-2, schedule=Cosine(warmup=2), clip_norm=0.5)
STAGES = 3
STEPS = 50
CODED_STEPS = 30
QUICK_STEPS = 20
SLOW_STEP_SECONDS = 1.0
MOVES = int(os.environ.get("SWARM_MOVES", "1"))
"""How often all stages of each model move, in another order: once in CI, twenty times in ``make nightly``."""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans soon after the last offer, lines several times a second."""
    monkeypatch.setattr(offers, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(lines, "SNAPSHOT_SECONDS", 0.3)
    monkeypatch.setattr(lines, "LEAD_SECONDS", 0.1)
    monkeypatch.setattr(lines, "REST", 0.0)


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once all has moved that is to: until then later steps take their time, however slow this machine is
    at moving stages, and the job does not end before."""
    moved, do = asyncio.Event(), StagePipeline._do

    async def unhurried(pipeline: StagePipeline, work: Work) -> None:
        begins = isinstance(work, Forward) and (work.phase, work.micro_batch) == ("train", 0)
        if begins and pipeline.stage == 0 and work.step >= QUICK_STEPS:  # type: ignore[union-attr]
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SLOW_STEP_SECONDS):
                    await moved.wait()
        await do(pipeline, work)

    monkeypatch.setattr(StagePipeline, "_do", unhurried)
    return moved


class Scene:
    """A job in training on three peers that are all needed, and one more that could take a stage."""

    def __init__(self, cluster: Cluster, prepared: PreparedJob) -> None:
        self.cluster = cluster
        self._prepared = prepared
        self.memory = memory_of(prepared, STAGES)
        self.nodes: list[TrainingNode] = []
        self.job: Job

    async def begin(self, *, spares: int = 1) -> None:
        await self.cluster.add_bootstrap()
        self.nodes = [await self.cluster.add_peer(memory=self.memory) for _ in range(STAGES)]
        author = await self.cluster.add_author()
        self.job = await author.author.publish(self._prepared, patience=60.0)
        await self.cluster.until(lambda: self.job.step >= 1)
        self.nodes += [await self.cluster.add_peer(memory=self.memory) for _ in range(spares)]

    async def steps(self, count: int) -> None:
        """Return after so many more steps."""
        until = self.job.step + count
        await self.cluster.until(lambda: self.job.step >= until)

    def holder(self, stage: int) -> TrainingNode:
        """Who holds ``stage``, as the author knows it."""
        plan = self.job.plan
        assert plan is not None
        return next(node for node in self.nodes if node.identity.peer == plan.stages[stage].holder)

    async def move(self, stage: int) -> None:
        """The user of whoever holds ``stage`` pauses that peer, and resumes it once the stage is gone."""
        leaver, before = self.holder(stage), self.generation
        leaver.set_paused(paused=True)
        await self.cluster.until(lambda: self.job.ended or self.generation > before)
        assert not self.job.ended, "the job was over sooner than the stage had moved"
        await self.cluster.until(lambda: self.job.ended or not leaver.held())
        leaver.set_paused(paused=False)

    @property
    def generation(self) -> int:
        """Of the plan that the author knows."""
        return self.job.plan.generation if self.job.plan is not None else 0


def longer(make_job: MakeJob, **changes: object) -> TrainingJob:
    """A job that takes long enough for stages to move."""
    return make_job(**({"steps": STEPS, "optimizer": ADAMW, "ema": 0.9, "validate_every": 7} | changes))


@pytest.fixture(scope="module")
def trials() -> dict[str, Trial]:
    """To capture and train takes longer than a test."""
    return {}


@pytest.fixture
def tied(make_job: MakeJob, trials: dict[str, Trial]) -> Trial:
    """A language model whose first and last stage share a parameter."""
    if "tied" not in trials:
        trials["tied"] = trial_of(longer(make_job))
    return trials["tied"]


@pytest.fixture
def resnet(trials: dict[str, Trial]) -> Trial:
    """An image model with batch normalisation, whose buffers every forward pass changes."""
    if "resnet" not in trials:
        trials["resnet"] = trial_of(zoo_job("resnet18", steps=STEPS, micro_batches=1))
    return trials["resnet"]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("seed", range(MOVES))
@pytest.mark.parametrize("model", ["tied", "resnet"])
async def test_every_stage_moves_at_some_step(
    tmp_path: Path, request: pytest.FixtureRequest, model: str, seed: int, moved: asyncio.Event
) -> None:
    trial, chance = request.getfixturevalue(model), random.Random(seed)
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        scene = Scene(cluster, trial.prepared)
        await scene.begin()
        for stage in chance.sample(range(STAGES), STAGES):
            await scene.steps(chance.randrange(4))
            await scene.move(stage)
        moved.set()
        assert scene.job.plan is not None
        assert [stage.incarnation for stage in scene.job.plan.stages] == [2] * STAGES
        await came_to(cluster, trial, scene.job, scene.nodes[-1], tmp_path)


async def test_what_codecs_drop_stays_the_same_when_a_stage_moves(
    tmp_path: Path, make_job: MakeJob, moved: asyncio.Event
) -> None:
    prepared = prepare_job(longer(make_job, steps=CODED_STEPS, policy="topk:20%"))
    came: list[tuple[float, ...]] = []
    for moves in (True, False):
        async with Cluster(tmp_path / f"swarm {moves}", networks=memory_networks()) as cluster:
            scene = Scene(cluster, prepared)
            await scene.begin()
            if moves:
                await scene.move(1)
            moved.set()
            await cluster.until(lambda job=scene.job: job.ended)  # type: ignore[misc]
            came.append(tuple(scene.job.losses))
    assert came[0] == came[1]
    assert len(came[0]) == CODED_STEPS


@pytest.mark.parametrize("who", ["newcomer", "holder", "neighbour"])
async def test_a_peer_that_is_lost_while_a_stage_moves_costs_no_bit(
    tmp_path: Path, tied: Trial, who: str, moved: asyncio.Event
) -> None:
    async with Cluster(tmp_path / "swarm", networks=memory_networks()) as cluster:
        scene = Scene(cluster, tied.prepared)
        await scene.begin(spares=2)
        stage = next(k for k in range(STAGES) if scene.holder(k).identity.peer != scene.job.coordinator)
        leaver, spares = scene.holder(stage), scene.nodes[STAGES:]
        others = [scene.holder(k) for k in range(STAGES) if k != stage]
        neighbour = next(node for node in others if node.identity.peer != scene.job.coordinator)
        leaver.set_paused(paused=True)
        await cluster.until(lambda: any(node.held() for node in spares))
        newcomer = next(node for node in spares if node.held())
        lost = {"newcomer": newcomer, "holder": leaver, "neighbour": neighbour}[who]
        await cluster.end(lost)
        moved.set()
        coordinator = next(node for node in scene.nodes if node.identity.peer == scene.job.coordinator)
        await came_to(cluster, tied, scene.job, coordinator, tmp_path)
