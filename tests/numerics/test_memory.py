"""The planner's memory of a stage beside the peak that torch's allocator has while the stage trains."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import settings
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from swarm.compress.layout import DTYPES, dump, rebuild
from swarm.graph.cut import cut, legal_bounds, shared_parameters
from swarm.graph.dag import Graph
from swarm.graph.stage import Stage
from swarm.ids import OperatorIndex, ValueId
from swarm.protocol.order import one_forward_one_backward
from swarm.schedule.cost import graph_costs
from swarm.schedule.memory import MemoryModel
from swarm.testing.zoo import ZOO
from swarm.train.capture import Captured, capture
from swarm.train.optimizer import SGD, AdamW, Optimizer, to_manifest
from swarm.train.stage import StageExecutor, StageTask

CPU = torch.device("cpu")
NIGHTLY = settings.get_current_profile_name() == "nightly"
MICRO_BATCHES = 4
TOLERANCE = 0.15
SMALL = 64 * 1024
"""Bytes by which an estimate may be off whatever the stage: alignment, scalars, statistics."""


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, dim=2)
        query, key, value = (p.view(batch, time, 4, width // 4).transpose(1, 2) for p in parts)
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(y.transpose(1, 2).reshape(batch, time, width))
        return x + self.perceptron(self.norm2(x))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(256, 64), nn.Embedding(64, 64)
        self.blocks, self.norm = nn.Sequential(*(Block(64) for _ in range(3))), nn.LayerNorm(64)
        self.head = nn.Linear(64, 256, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)
        self.short = nn.Conv2d(inside, outside, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.second(torch.relu(self.norm1(self.first(x)))))
        return torch.relu(y + self.short(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 1, 1), nn.BatchNorm2d(16), nn.ReLU())
        self.body = nn.Sequential(Residual(16, 16, 1), Residual(16, 32, 2), Residual(32, 64, 2))
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(self.stem(x)).mean((2, 3)))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()

        def layer(inside: int, outside: int) -> nn.Module:
            return nn.Sequential(
                nn.Conv2d(inside, outside, 3, padding=1), nn.GroupNorm(4, outside), nn.SiLU()
            )

        self.down1, self.down2, self.middle = layer(3, 16), layer(16, 32), layer(32, 32)
        self.up1, self.up2, self.out = layer(64, 16), layer(32, 16), nn.Conv2d(16, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(functional.max_pool2d(a, 2))
        y = functional.interpolate(self.middle(functional.max_pool2d(b, 2)), scale_factor=2)
        y = functional.interpolate(self.up1(torch.cat([y, b], 1)), scale_factor=2)
        return self.out(self.up2(torch.cat([y, a], 1)))


class Speech(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.recurrent, self.head = nn.LSTM(32, 64, 2, batch_first=True), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.recurrent(x)[0][:, -1])


class Adapted(nn.Module):
    """A frozen perceptron with a low-rank adapter."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(nn.Linear(128, 512), nn.GELU(), nn.Linear(512, 128))
        self.base.requires_grad_(requires_grad=False)
        self.down, self.up = nn.Linear(128, 4, bias=False), nn.Linear(4, 128, bias=False)
        self.head = nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = self.base(x) + self.up(self.down(x))
        return self.head(x)


def labels(count: int, classes: int = 10) -> torch.Tensor:
    return torch.arange(count) % classes


Example = tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...], Any, Optimizer]
EXAMPLES: dict[str, Example] = {
    "gpt": (
        GPT,
        (torch.arange(512).reshape(8, 64) % 256, labels(512, 256)),
        functional.cross_entropy,
        AdamW(lr=1e-3),
    ),
    "resnet": (
        ResNet,
        (torch.ones(16, 3, 32, 32), labels(16)),
        functional.cross_entropy,
        SGD(lr=0.1, momentum=0.9),
    ),
    "unet": (
        UNet,
        (torch.ones(4, 3, 32, 32), torch.ones(4, 3, 32, 32)),
        functional.mse_loss,
        AdamW(lr=1e-3),
    ),
    "speech": (Speech, (torch.ones(16, 40, 32), labels(16)), functional.cross_entropy, AdamW(lr=1e-3)),
    "perceptron": (
        lambda: nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10)
        ),
        (torch.ones(128, 64), labels(128)),
        functional.cross_entropy,
        SGD(lr=0.1),
    ),
    "adapters": (Adapted, (torch.ones(64, 128), labels(64)), functional.cross_entropy, AdamW(lr=1e-3)),
}


def peak_bytes(run: Callable[[], object]) -> int:
    """The most bytes at once that ``run`` had of torch's allocator, beyond those before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        kept = run()
    now = peak = 0
    for event in found.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            now += event.nbytes()
            peak = max(peak, now)
    del kept
    return peak


def some(graph: Graph, value: int) -> torch.Tensor:
    spec = graph.values[value].spec
    return torch.ones(spec.shape, dtype=DTYPES[spec.dtype])


class Training:
    """One stage alone: what other stages would send it comes as payloads, which live as long as in a peer."""

    def __init__(self, graph: Graph, stages: Sequence[Stage], index: int, depth: int) -> None:
        self.graph, self.stages, self.stage, self.depth = graph, stages, stages[index], depth

    def received(self, values: Sequence[int]) -> dict[ValueId, Any]:
        return {ValueId(value): dump(some(self.graph, value)) for value in values}

    def steps(self, task: StageTask, tensors: Any, fields: Sequence[torch.Tensor]) -> StageExecutor:
        executor = StageExecutor(task, tensors, CPU)
        places = self.graph.inputs()
        made: object = None
        for step in range(2):
            for work in one_forward_one_backward(task.micro_batches, self.depth):
                if work.kind == "forward":
                    inputs = {value: fields[places.index(value)] for value in self.stage.inputs}
                    sent = self.received([edge.value for edge in self.stage.incoming])
                    made = executor.forward(step, work.micro_batch, inputs, self.rebuilt(sent))
                else:
                    sent = self.received([edge.value for edge in self.stage.outgoing if edge.gradient])
                    made = executor.backward(step, work.micro_batch, self.rebuilt(sent))
            sent, made = {}, None
            executor.measure(self.shared())
            executor.apply(0.5, 0.001)
        assert made is None
        return executor

    def rebuilt(self, sent: dict[ValueId, Any]) -> dict[ValueId, torch.Tensor]:
        return {value: rebuild(header, payload, CPU) for value, (header, payload) in sent.items()}

    def shared(self) -> dict[tuple[ValueId, OperatorIndex], torch.Tensor]:
        return {
            (shared.parameter, use.operator): some(self.graph, shared.parameter)
            for shared in shared_parameters(self.graph, self.stages)
            for use in shared.uses
            if shared.owner == self.stage.index != use.stage
        }


@pytest.mark.parametrize(("count", "recompute"), [(1, False), (2, False), (3, False), (2, True), (3, True)])
@pytest.mark.parametrize("name", EXAMPLES)
def test_what_is_planned_for_a_stage_is_what_it_takes(name: str, count: int, recompute: bool) -> None:
    make, fields, loss, optimizer = EXAMPLES[name]
    assert_planned(capture(make(), fields, loss=loss), fields, optimizer, count, recompute=recompute)


@pytest.mark.parametrize("name", ZOO if NIGHTLY else ["deepspeech2"])
def test_what_is_planned_for_a_model_of_the_zoo_is_what_it_takes(name: str) -> None:
    """Every night all of them; else the one whose operators no example has."""
    torch.manual_seed(0)
    entry = ZOO[name]
    sample = entry.sample(torch.Generator().manual_seed(1))
    captured = capture(entry.make(), sample, loss=entry.loss)
    for count in (1, 3):
        assert_planned(captured, tuple(sample.values()), AdamW(lr=1e-3), count)


def assert_planned(
    captured: Captured,
    fields: Sequence[torch.Tensor],
    optimizer: Optimizer,
    count: int,
    *,
    recompute: bool = False,
) -> None:
    """Each of ``count`` stages takes the memory that is planned for it."""
    graph, spec = captured.graph, to_manifest(optimizer)
    legal = [position for position, allowed in enumerate(legal_bounds(graph)) if allowed]
    inner = {legal[len(legal) * part // count] for part in range(1, count)}
    bounds = [0, *sorted(inner), len(graph.operators)]
    stages = cut(graph, bounds)
    model = MemoryModel(graph, graph_costs(graph), spec)
    for index, stage in enumerate(stages):
        task = StageTask(
            graph=graph,
            stage=stage,
            evaluation=None,
            optimizer=spec,
            micro_batches=MICRO_BATCHES,
            seed=0,
            recompute=recompute,
        )
        depth = min(count - index, MICRO_BATCHES)
        training = Training(graph, stages, index, depth)
        peak = peak_bytes(lambda t=training, task=task: t.steps(task, captured.tensors, fields))  # type: ignore[misc]
        planned = model.stage_bytes(bounds[index], bounds[index + 1], depth, recompute=recompute)
        assert abs(planned - peak) <= max(TOLERANCE * peak, SMALL), (
            f"stage {index + 1}, operators {bounds[index]} to {bounds[index + 1]}: "
            f"planned {planned}, measured {peak}, {planned / max(peak, 1):.2f}"
        )
