"""``--verify`` accepts what the swarm computes, and nothing that was tampered with."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.compress.boundaries import Passage
from swarm.errors import FailureError
from swarm.graph.stage import Stage
from swarm.ids import ValueId
from swarm.protocol.settlement import Validation
from swarm.services.training.arrays import to_array
from swarm.services.training.author import PreparedJob, prepare_job
from swarm.services.training.verify import Trained, Verification, lockstep_job, verify
from swarm.services.training.weights import write_weights
from swarm.train.device import DeviceThread
from swarm.train.job import TrainingJob
from swarm.train.lockstep import Lockstep
from swarm.train.optimizer import SGD

CPU = torch.device("cpu")


class ZeroedGradient(Lockstep):
    """Stages between which the gradient that crosses back is lost."""

    def _carried(
        self, stage: Stage, tensors: Mapping[ValueId, torch.Tensor], passage: Passage
    ) -> dict[ValueId, torch.Tensor]:
        arrived = super()._carried(stage, tensors, passage)
        if passage.direction == "forward":
            return arrived
        return {value: torch.zeros_like(tensor) for value, tensor in arrived.items()}


@pytest.fixture
def prepared() -> PreparedJob:
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(40, 6)).astype(np.float32)
    job = TrainingJob(
        model=nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)),
        loss=functional.mse_loss,
        dataset=(x, x.sum(axis=1, keepdims=True)),
        held_out=(x[:8], x[:8, :1]),
        optimizer=SGD(lr=0.05, momentum=0.9, clip_norm=1.0),
        micro_batch_size=4,
        micro_batches=3,
        steps=5,
    )
    return prepare_job(job)


async def train(prepared: PreparedJob, kind: type[Lockstep], file: Path) -> Trained:
    """Train in two stages, as a swarm of two would."""
    job = lockstep_job(prepared, cancelled=lambda: False)
    count = len(job.graph.operators)

    def run() -> Trained:
        stages = kind(job, (0, count // 2, count), CPU)
        losses = [stages.step(step).loss for step in range(job.steps)]
        validations = [stages.validate()]
        arrays = {name: to_array(tensor) for name, tensor in stages.tensors().items()}
        write_weights(file, prepared.captured.state_dict.items(), arrays)
        return Trained(losses=losses, validations=validations, weights=file)

    async with DeviceThread(CPU) as device:
        return await device.run(run)


async def check(prepared: PreparedJob, trained: Trained, *, cancelled: bool = False) -> Verification:
    async with DeviceThread(CPU) as device:
        return await device.run(verify, prepared, trained, CPU, cancelled=lambda: cancelled)


async def test_two_stages_satisfy_both_contracts(prepared: PreparedJob, tmp_path: Path) -> None:
    found = await check(prepared, await train(prepared, Lockstep, tmp_path / "w"))
    assert found.good
    assert found.identical
    assert found.difference < 1e-6


async def test_a_boundary_s_lost_gradient_fails_both(prepared: PreparedJob, tmp_path: Path) -> None:
    found = await check(prepared, await train(prepared, ZeroedGradient, tmp_path / "w"))
    assert not found.good
    assert not found.identical
    assert found.difference > 1e-4
    assert found.worst_step > 0, "the first loss comes before any update"


async def test_a_single_bit_of_a_weight_is_seen(prepared: PreparedJob, tmp_path: Path) -> None:
    trained = await train(prepared, Lockstep, tmp_path / "w")
    data = bytearray(trained.weights.read_bytes())
    data[-1] ^= 1
    trained.weights.write_bytes(data)
    found = await check(prepared, trained)
    assert found.difference < 1e-6
    assert not found.identical
    assert not found.good


async def test_a_held_out_loss_that_is_off_is_seen(prepared: PreparedJob, tmp_path: Path) -> None:
    trained = await train(prepared, Lockstep, tmp_path / "w")
    (held_out,) = trained.validations
    off = Validation(step=held_out.step, loss=np.nextafter(held_out.loss, 9.0))
    assert not (await check(prepared, replace(trained, validations=[off]))).identical


async def test_it_stops_when_told_to(prepared: PreparedJob, tmp_path: Path) -> None:
    trained = await train(prepared, Lockstep, tmp_path / "w")
    with pytest.raises(FailureError, match="interrupted"):
        await check(prepared, trained, cancelled=True)


def test_the_graph_s_inputs_are_the_samples_fields_in_order(prepared: PreparedJob) -> None:
    job = lockstep_job(prepared, cancelled=lambda: False)
    batch = job.batch(0, 0)
    assert list(batch) == [ValueId(value) for value in prepared.captured.train.inputs()]
    assert [tuple(tensor.shape) for tensor in batch.values()] == [(4, 6), (4, 1)]
