"""The policy deadline in a swarm: codecs follow what links carry, and step records agree on them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from swarm.compress.codec import Arrived, Place, Rebuilt
from swarm.compress.integers import Integers
from swarm.services.node_status import describe_node
from swarm.services.training.author import prepare_job
from swarm.services.training.verify import lockstep_job
from swarm.testing.cluster import Cluster, memory_networks
from swarm.train.device import DeviceThread
from swarm.train.job import TrainingJob
from swarm.train.lockstep import run_lockstep
from swarm.train.optimizer import SGD, Adam
from swarm.wire.codecs import CodecSpec
from swarm.wire.limits import MIB
from tests.integration.test_training import PATIENCE, finished, memory_of

CPU = torch.device("cpu")
WIDTH, SAMPLES, BATCH = 256, 256, 128


def job(policy: str) -> TrainingJob:
    """Two layers with 128 KiB between them."""
    torch.manual_seed(0)
    draw = np.random.default_rng(0)
    inputs = draw.standard_normal((SAMPLES, WIDTH), dtype=np.float32)
    return TrainingJob(
        name="wide",
        model=nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH)),
        loss=nn.functional.mse_loss,
        dataset=(inputs, np.roll(inputs, 1, axis=1)),
        optimizer=SGD(lr=0.5),
        micro_batch_size=BATCH,
        micro_batches=2,
        steps=6,
        policy=policy,
    )


async def test_codecs_follow_a_slow_uplink_and_every_step_has_those_that_its_record_says(
    tmp_path: Path,
) -> None:
    prepared = prepare_job(job("deadline:tolerant"))
    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        memory = memory_of(prepared, 2)
        nodes = [await cluster.add_peer(memory=memory, up=1 * MIB) for _ in range(2)]
        author = await cluster.add_author()
        followed = await author.author.publish(prepared, patience=PATIENCE)
        await cluster.until(lambda: followed.ended or bool(followed.hiding))
        shown, said = describe_node(author).plan, followed.hiding
        await finished(cluster, followed)
        seen = {link.rate_up for node in nodes for link in describe_node(node).links}
    plan = followed.plan
    assert plan is not None
    assert shown is not None
    assert {str(stage.codec) for stage in plan.stages} == {"fp32"}
    assert any("no rate between these peers is known yet" in line for line in plan.explanation)
    (first, agreed), *_ = followed.encodings
    assert first >= 3  # two steps are measured, and the one after the second is under way
    assert agreed[0] != CodecSpec()
    assert shown.stages[0].codec == str(agreed[0])
    assert shown.explanation[-1] == said
    assert "hide" in said
    assert any(rate is not None and rate < 1.5 * MIB for rate in seen)
    bounds = [0, *(stage.last for stage in plan.stages)]
    async with DeviceThread(CPU) as device:
        lockstep = lockstep_job(prepared, cancelled=lambda: False)
        codecs, changes = [stage.codec for stage in plan.stages], dict(followed.encodings)
        same = await device.run(lambda: run_lockstep(lockstep, CPU, bounds, codecs, changes))
        plain = await device.run(lambda: run_lockstep(lockstep, CPU, bounds))
    assert tuple(followed.losses) == same.losses
    assert same.losses[:first] == plain.losses[:first]
    assert same.losses[first] != plain.losses[first]


async def test_a_decoder_that_gives_zeros_is_seen_in_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare_job(replace(job("int6"), steps=12, optimizer=Adam(lr=1e-2)))
    trained = lockstep_job(prepared, cancelled=lambda: False)
    bounds, codecs = [0, 2, len(trained.graph.operators)], [CodecSpec("int6")] * 2
    put_together = Integers.put_together

    def zeros(self: Integers, arrived: Arrived, place: Place) -> Rebuilt:
        return Rebuilt(tensor=torch.zeros_like(put_together(self, arrived, place).tensor))

    async with DeviceThread(CPU) as device:
        encoded = await device.run(lambda: run_lockstep(trained, CPU, bounds, codecs).losses)
        monkeypatch.setattr(Integers, "put_together", zeros)
        blind = await device.run(lambda: run_lockstep(trained, CPU, bounds, codecs).losses)
    assert encoded[-1] < 0.5 * encoded[0]
    assert blind[-1] > 0.9 * blind[0]
