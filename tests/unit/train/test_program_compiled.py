"""Stages that train through ``torch.compile``: what it may change, and what becomes of one that cannot."""

import dataclasses
import logging
import os
import shutil
from collections.abc import Iterator
from functools import cache

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor
from torch.nn import functional

from swarm.graph.cut import legal_bounds
from swarm.graph.stage import Stage
from swarm.ids import ValueId
from swarm.testing.like_machine import like_machine
from swarm.testing.zoo import ZOO
from swarm.train.capture import Captured, capture
from swarm.train.lockstep import Lockstep, LockstepJob
from swarm.train.program_compiled import CompiledProgram, Function
from swarm.train.stage import StageTask
from swarm.wire.messages.pipeline import StageReport
from swarm.wire.records.manifest import Optimizer, Schedule

CPU = torch.device("cpu")
SGD = Optimizer(kind="sgd", lr=0.1, schedule=Schedule(kind="constant", warmup=0, floor=1.0))
MICRO_BATCHES = 2


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    with like_machine():
        yield
    torch._dynamo.reset()


class Block(nn.Module):
    """A transformer's, between an embedding and a head that are one parameter."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.tokens, self.norm = nn.Embedding(32, 16), nn.LayerNorm(16)
        self.qkv, self.output = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        query, key, value = (part[:, None] for part in self.qkv(self.norm(x)).chunk(3, 2))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)[:, 0]
        return (
            x + self.dropout(functional.gelu(self.output(y))) @ self.tokens.weight.T @ self.tokens.weight
        ).mT


BLOCKS = {"block": 0.0, "block with dropout": 0.3}


@cache
def captured(name: str) -> tuple[Captured, dict[ValueId, torch.Tensor]]:
    torch.manual_seed(0)
    if name in BLOCKS:
        text = torch.randint(0, 32, (2, 8))
        model, loss, fields = (
            Block(BLOCKS[name]),
            functional.cross_entropy,
            (text, torch.randint(0, 16, (2, 8))),
        )
    else:
        model, loss = ZOO[name].make(), ZOO[name].loss
        fields = ZOO[name].sample(torch.Generator().manual_seed(1))
    found = capture(model, fields, loss=loss)
    given = fields if isinstance(fields, tuple) else fields.values()
    return found, dict(zip(found.graph.inputs(), given, strict=True))


def job_of(name: str) -> LockstepJob:
    found, batch = captured(name)
    return LockstepJob(
        graph=found.graph,
        evaluation=None,
        tensors=found.tensors,
        optimizer=SGD,
        micro_batches=MICRO_BATCHES,
        steps=2,
        seed=5,
        batch=lambda _, __: batch,
    )


class Training(Lockstep):
    """Its stages run compiled, or as ever."""

    def __init__(self, job: LockstepJob, *, compiled: bool, stages: int = 1) -> None:
        self.compiled = compiled
        legal = [position for position, allowed in enumerate(legal_bounds(job.graph)) if allowed]
        inner = [legal[len(legal) * part // stages] for part in range(1, stages)]
        super().__init__(job, [0, *inner, len(job.graph.operators)], CPU)

    def _task(self, stage: Stage) -> StageTask:
        return dataclasses.replace(super()._task(stage), compiled=self.compiled)

    def compute(self, step: int) -> list[StageReport]:
        reports = super().compute(step)
        self.gradients = {
            value: gradient.clone()
            for e in self.executors
            for value, gradient in e._parameters._totals.items()
        }
        return reports

    def parts(self) -> list[object]:
        """What the stages run."""
        programs = [executor._pass._program for executor in self.executors]
        return [
            part for program in programs if isinstance(program, CompiledProgram) for part in program._parts
        ]


def assert_near(compiled: Training, plain: Training) -> None:
    """The first contract of decision D5: losses within 1e-5, gradients within 1e-6 of their largest entry."""
    for step in range(2):
        assert compiled.step(step).loss == pytest.approx(plain.step(step).loss, rel=1e-5)
        assert compiled.gradients.keys() == plain.gradients.keys()
        largest = max(gradient.abs().max() for gradient in plain.gradients.values())
        for value, gradient in plain.gradients.items():
            assert (compiled.gradients[value] - gradient).abs().max() <= 1e-6 * largest
    for name, tensor in plain.tensors().items():
        torch.testing.assert_close(compiled.tensors()[name], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_stage_trains_within_the_first_contract_compiled_wherever_there_is_a_compiler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    has_compiler = shutil.which(os.environ.get("CXX", "g++")) is not None
    job = job_of("block")
    compiled = Training(job, compiled=True)
    with caplog.at_level(logging.WARNING):
        assert_near(compiled, Training(job, compiled=False))
    assert len(caplog.records) == (0 if has_compiler else 1)
    assert any(isinstance(part, Function) for part in compiled.parts()) == has_compiler


@pytest.mark.timeout(120)
def test_without_a_compiler_a_stage_says_so_once_and_trains_to_the_same_bits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = job_of("block")
    compiled, plain = Training(job, compiled=True), Training(job, compiled=False)
    nowhere = inductor.patch({"cpp.cxx": ("no-such-compiler",), "force_disable_caches": True})
    with nowhere, caplog.at_level(logging.WARNING):
        assert [compiled.step(step).loss for step in range(2)] == [plain.step(step).loss for step in range(2)]
    (record,) = caplog.records
    assert record.getMessage().startswith("stage 1 runs uncompiled, because compiling failed: ")
    assert "no-such-compiler" in record.getMessage()
    tensors = plain.tensors()
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in compiled.tensors().items())


@pytest.mark.parametrize("name", ["block with dropout", "resnet18"])
def test_what_is_compiled_is_what_the_graph_says(name: str) -> None:
    """Each function as torch runs it uncompiled, which takes no compiler: dropout, buffers, cuts and all."""
    job = job_of(name)
    with torch.compiler.set_stance("force_eager"):
        compiled = Training(job, compiled=True, stages=3)
        assert_near(compiled, Training(job, compiled=False, stages=3))
    parts = compiled.parts()
    assert sum(isinstance(part, Function) for part in parts) >= 3
    assert len(parts) < len(job.graph.operators) / 2
