import dataclasses
import math
from collections.abc import Mapping
from functools import cache

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from swarm.errors import TrainingError
from swarm.ids import ValueId
from swarm.train.capture import Captured, capture
from swarm.train.lockstep import Lockstep, LockstepJob, run_lockstep
from swarm.wire.records.manifest import Optimizer, Schedule

CPU = torch.device("cpu")
CLIPPED = Optimizer(kind="sgd", lr=0.5, schedule=Schedule(kind="linear", warmup=1, floor=0.0), clip_norm=0.1)


class Model(nn.Module):
    """Two layers and a parameter that only evaluation reads."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 3)
        self.scale = nn.Parameter(torch.full((), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.second(torch.tanh(self.first(x)))
        return y if self.training else y * self.scale


def batch(index: int) -> Mapping[ValueId, torch.Tensor]:
    chance = torch.Generator().manual_seed(index)
    return {
        ValueId(0): torch.randn(6, 4, generator=chance),
        ValueId(1): torch.randint(0, 3, (6,), generator=chance),
    }


@cache
def captures() -> tuple[nn.Module, Captured, Captured]:
    torch.manual_seed(0)
    module, example = Model(), tuple(batch(0).values())
    return (
        module,
        capture(module, example, loss=nn.functional.cross_entropy),
        capture(module, example, loss=nn.functional.cross_entropy, mode="evaluate"),
    )


def job(optimizer: Optimizer = CLIPPED) -> LockstepJob:
    _, train, evaluate = captures()
    return LockstepJob(
        graph=train.graph,
        evaluation=evaluate.graph,
        tensors=train.tensors,
        optimizer=optimizer,
        micro_batches=2,
        steps=4,
        seed=1,
        batch=lambda step, micro_batch: batch(10 * step + micro_batch),
        held_out=lambda index: batch(1000 + index),
        held_out_batches=3,
    )


@pytest.mark.parametrize("bounds", [None, (0, 1, 4), (0, 2, 3, 4)])
def test_a_run_is_that_of_the_author_s_module_under_torch(bounds):
    run = run_lockstep(job(), CPU, bounds)
    module, _, _ = captures()
    mirror = Model()
    mirror.load_state_dict(module.state_dict())
    optimizer = torch.optim.SGD(mirror.parameters(), lr=0.5)
    losses = []
    for step in range(4):
        parts = []
        for index in range(2):
            x, target = batch(10 * step + index).values()
            loss = nn.functional.cross_entropy(mirror(x), target)
            (loss / 2).backward()
            parts.append(loss.item())
        losses.append(sum(parts) / 2)
        nn.utils.clip_grad_norm_(mirror.parameters(), 0.1)
        optimizer.param_groups[0]["lr"] = 0.5 * (1.0 if step == 0 else 1 - (step - 1) / 3)
        optimizer.step()
        optimizer.zero_grad()
    assert run.losses == pytest.approx(losses, rel=1e-6)
    for name, tensor in mirror.state_dict().items():
        torch.testing.assert_close(run.tensors[name], tensor, rtol=1e-5, atol=1e-7)
    mirror.eval()
    held_out = [
        nn.functional.cross_entropy(mirror(x), target).item()
        for x, target in (batch(1000 + index).values() for index in range(3))
    ]
    assert run.held_out == pytest.approx(sum(held_out) / 3, rel=1e-6)


@pytest.mark.parametrize("bounds", [None, (0, 1, 4), (0, 2, 3, 4)])
def test_validations_are_what_a_run_that_ends_there_evaluates_and_training_does_not_notice(bounds):
    plain = run_lockstep(job(), CPU)
    run = run_lockstep(dataclasses.replace(job(), validate_every=1, validation_batches=3), CPU, bounds)
    assert run.losses == plain.losses
    assert all(torch.equal(tensor, plain.tensors[name]) for name, tensor in run.tensors.items())
    assert [validation.step for validation in run.validations] == [1, 2, 3, 4]
    assert run.held_out == plain.held_out
    for validation in run.validations:
        lockstep = Lockstep(job(), (0, 4), CPU)
        for step in range(validation.step):
            lockstep.step(step)
        losses = [lockstep.evaluate(index, batch(1000 + index)) for index in range(3)]
        assert validation.loss == sum(losses) / 3


def test_a_bounded_validation_has_the_first_micro_batches_and_the_last_one_all():
    run = run_lockstep(dataclasses.replace(job(), validate_every=2, validation_batches=1), CPU)
    whole = run_lockstep(dataclasses.replace(job(), validate_every=2, validation_batches=3), CPU)
    assert [validation.step for validation in run.validations] == [2, 4]
    lockstep = Lockstep(job(), (0, 4), CPU)
    for step in range(2):
        lockstep.step(step)
    assert run.validations[0].loss == lockstep.evaluate(0, batch(1000))
    assert run.validations[0] != whole.validations[0]
    assert run.validations[1] == whole.validations[1]


def test_tensors_that_no_stage_trains_keep_their_values():
    run = run_lockstep(job(), CPU)
    assert run.tensors["scale"].item() == 2.0


def test_without_held_out_samples_there_is_no_held_out_loss():
    _, train, _ = captures()
    plain = LockstepJob(
        graph=train.graph,
        evaluation=None,
        tensors=train.tensors,
        optimizer=CLIPPED,
        micro_batches=1,
        steps=1,
        seed=0,
        batch=lambda step, micro_batch: batch(step),
    )
    assert run_lockstep(plain, CPU).held_out is None


class Overflowing(nn.Module):
    """Fine with its first weight, infinite with a large one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.weight).exp()


@pytest.mark.parametrize(("inner", "place"), [((), "1 of 1"), ((1, 2), "2 of 3")])
def test_a_step_that_breaks_is_named_and_leaves_no_trace(inner, place):
    samples = {ValueId(0): torch.full((2,), 5.0), ValueId(1): torch.full((2,), 1e6)}
    captured = capture(Overflowing(), tuple(samples.values()), loss=nn.functional.l1_loss)
    lockstep = Lockstep(
        LockstepJob(
            graph=captured.graph,
            evaluation=None,
            tensors=captured.tensors,
            optimizer=replace(CLIPPED, clip_norm=0.0),
            micro_batches=1,
            steps=2,
            seed=0,
            batch=lambda step, micro_batch: samples,
        ),
        (0, *inner, len(captured.graph.operators)),
        CPU,
    )
    lockstep.step(0)
    assert lockstep.tensors()["weight"] > 100
    before = {name: tensor.clone() for name, tensor in lockstep.tensors().items()}
    where = (
        rf"first in the forward pass of stage {place} \(the operator exp in the model itself "
        r"at test_lockstep\.py"
    )
    with pytest.raises(TrainingError, match=f"step 1: the loss became NaN or infinite: {where}"):
        lockstep.step(1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in lockstep.tensors().items())


def test_the_norm_of_a_step_is_that_of_all_gradients():
    whole, parts = Lockstep(job(), (0, 4), CPU), Lockstep(job(), (0, 1, 3, 4), CPU)
    squares = [
        sorted((s.parameter, s.total) for r in run.compute(0) for s in r.squares) for run in (whole, parts)
    ]
    assert squares[0] == squares[1]
    for run in (whole, parts):
        for executor in run.executors:
            executor.abandon_step()
        settlement = run.step(0)
        assert settlement.norm == math.sqrt(sum(total for _, total in squares[0]))
        assert settlement.clip == pytest.approx(0.1 / settlement.norm, rel=1e-4)
