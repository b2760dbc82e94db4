"""Decision D5, against ourselves: whatever the partition, the same bits. And one stage against PyTorch.

Every boundary tensor, shared gradient and shared value is taken apart to bytes and rebuilt.
"""

import copy
import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from msgspec.structs import replace
from torch import nn
from torch.nn import functional

from swarm.graph.cut import legal_bounds
from swarm.ids import ValueId
from swarm.testing.like_machine import like_machine
from swarm.train import program
from swarm.train.capture import Captured, capture
from swarm.train.lockstep import Lockstep, LockstepJob, run_lockstep
from swarm.wire.records.manifest import Optimizer, Schedule

CPU = torch.device("cpu")
STEPS, MICRO_BATCHES, HELD_OUT = 3, 3, 2
COSINE = Schedule(kind="cosine", warmup=1, floor=0.1)
ADAMW = Optimizer(kind="adamw", lr=3e-3, schedule=COSINE, weight_decay=0.1, clip_norm=0.5)
SGD = Optimizer(kind="sgd", lr=1e-2, schedule=COSINE, momentum=0.9, weight_decay=0.01, clip_norm=1.0)


@pytest.fixture(autouse=True)
def device():
    with like_machine():
        yield


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).split(width, -1)
        q, k, v = (part.view(batch, length, 2, width // 2).transpose(1, 2) for part in parts)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    """Tied embedding; the embedded input goes into every block (a value of many stages)."""

    def __init__(self, width: int = 36) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(67, width), nn.Embedding(19, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 67, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = start = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x) + 0.1 * start
        return self.head(self.norm(x)).flatten(0, 1)


class Residual(nn.Module):
    """A block of a ResNet."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.second, self.norm2 = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        self.skip = nn.Conv2d(before, after, 1, stride, bias=False) if before != after else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm2(self.second(functional.relu(self.norm(self.first(x)), inplace=True)))
        y += self.skip(x)
        return functional.relu(y)


class ResNet(nn.Module):
    """BatchNorm, whose statistics change with every micro-batch."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            nn.Conv2d(3, 6, 3, 1, 1), Residual(6, 6, 1), Residual(6, 10, 2), Residual(10, 10, 1)
        )
        self.head = nn.Linear(10, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


class ChannelsLast(ResNet):
    """Weights and activations in another order of dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.to(memory_format=torch.channels_last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x.to(memory_format=torch.channels_last))


class UNet(nn.Module):
    """Long skips, resampling, padding, and an embedding that is used at both ends."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            [nn.Conv2d(3, 4, 3, 1, 1), nn.Conv2d(4, 8, 3, 2, 1), nn.Conv2d(8, 12, 3, 2, 1)]
        )
        self.up = nn.ModuleList([nn.Conv2d(20, 8, 3, 1, 1), nn.Conv2d(12, 4, 3, 1, 1), nn.Conv2d(4, 5, 1)])
        self.norm, self.condition = nn.GroupNorm(3, 12), nn.Linear(1, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        e = self.condition(x.mean((1, 2, 3))[:, None])[:, :, None, None]
        a = functional.silu(self.down[0](x)) + e
        b = functional.silu(self.down[1](a))
        c = functional.silu(self.norm(self.down[2](b)))
        c = functional.silu(
            self.up[0](torch.cat([functional.interpolate(c, scale_factor=2, mode="nearest"), b], 1))
        )
        c = (
            functional.silu(
                self.up[1](torch.cat([functional.interpolate(c, scale_factor=2, mode="bilinear"), a], 1))
            )
            * e
        )
        return self.up[2](functional.pad(c, (1, 1, 1, 1))).mean((2, 3))


class Thin(nn.Module):
    """Slices that lie too thin in memory to travel: of activations, and of gradients behind ``cat``."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 24, 3, 1, 1), nn.BatchNorm2d(2)
        self.grow = nn.ModuleList(
            nn.Sequential(nn.Conv2d(24 + 2 * i, 2, 3, 1, 1, bias=False), nn.BatchNorm2d(2)) for i in range(4)
        )
        self.head = nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        part = torch.tanh(self.norm(x[:, 3:5])).mean((2, 3))
        for grow in self.grow:
            x = torch.cat([x, grow(x)], 1)
        return self.head(torch.tanh(x).mean((2, 3))) + torch.cat([part, part, part[:, :1]], 1)


class Outputs(nn.Module):
    """Operators with several outputs, masks, dropout, frozen and shared parameters, buffers of all sorts."""

    def __init__(self, width: int = 12) -> None:
        super().__init__()
        self.start, self.head = nn.Linear(6, width), nn.Linear(width, 5)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))
        self.qkv = nn.Linear(width, 3 * width)
        self.first = nn.Parameter(torch.randn(1, 1, width))
        self.frozen = nn.Parameter(torch.rand(width), requires_grad=False)
        self.register_buffer("mask", torch.full((5, 5), float("-inf")).triu(1))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("count", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.start(x)
        h = x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1)
        if self.training:
            self.count.add_(1)
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean((0, 1)))
        for layer in self.layers:
            q, k, v = self.qkv(x).chunk(3, -1)
            weights = (q @ k.transpose(1, 2) / 3 + self.mask).softmax(-1)
            x = x + functional.dropout(weights @ v, 0.3, self.training)
            top, _ = layer(x).topk(3, -1)
            x = x + h * 0.1 + layer(x).sort(-1).values * top.mean(-1, keepdim=True)
            x = x * torch.sigmoid(x.max(1).values)[:, None] * self.frozen
            x = x + x.unfold(1, 2, 1).mean(-1).mean(1, keepdim=True)
        return self.head(x[:, 0] - self.mean) + self.head(h[:, -1])


class Recurrent(nn.Module):
    """LSTM and GRU with dropout between layers, a cell in a loop, and a tied embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.head = nn.Embedding(67, 8), nn.Linear(8, 67)
        self.lstm = nn.LSTM(8, 12, 2, batch_first=True, dropout=0.2)
        self.gru, self.cell = nn.GRU(12, 8), nn.LSTMCell(8, 8)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        y, _ = self.gru(self.lstm(self.tokens(tokens))[0])
        h = c = torch.zeros(tokens.shape[0], 8)
        states = []
        for place in range(tokens.shape[1]):
            h, c = self.cell(y[:, place], (h, c))
            states.append(h)
        return self.head(y + torch.stack(states, 1)).flatten(0, 1)


class Interleaved(nn.Module):
    """Three copies of one value, used in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.head = nn.Linear(6, 16), nn.Linear(16, 5)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.start(x).mean(1)
        b = a.clone()
        same = [a, b, b.clone()]
        return self.head(sum(torch.tanh(layer(same[i % 3])) for i, layer in enumerate(self.layers)))


Sample = Callable[[torch.Generator], tuple[torch.Tensor, torch.Tensor]]


def images(chance: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 3, 8, 8, generator=chance), torch.randint(0, 5, (4,), generator=chance)


def vectors(chance: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 4, 6, generator=chance), torch.randint(0, 5, (4,), generator=chance)


def text(length: int) -> Sample:
    def sample(chance: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(0, 67, (3, length + 1), generator=chance)
        return tokens[:, :-1], tokens[:, 1:].flatten()

    return sample


@dataclass(frozen=True, kw_only=True)
class Case:
    """A model of the zoo with its samples."""

    model: Callable[[], nn.Module]
    sample: Sample
    exact: bool = True
    """Whether eager PyTorch draws the same random numbers: none."""


ZOO = {
    "gpt": Case(model=GPT, sample=text(19)),
    "resnet": Case(model=ResNet, sample=images),
    "channels-last": Case(model=ChannelsLast, sample=images),
    "u-net": Case(model=UNet, sample=images),
    "thin": Case(model=Thin, sample=images),
    "outputs": Case(model=Outputs, sample=vectors, exact=False),
    "recurrent": Case(model=Recurrent, sample=text(5), exact=False),
    "interleaved": Case(model=Interleaved, sample=vectors),
}


@cache
def captures(name: str, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Captured, Captured]:
    torch.manual_seed(4)
    module = ZOO[name].model().to(dtype)
    example = fields(name, 0, 0, dtype)
    train = capture(module, example, loss=functional.cross_entropy)
    return module, train, capture(module, example, loss=functional.cross_entropy, mode="evaluate")


def fields(
    name: str, step: int, micro_batch: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor]:
    x, target = ZOO[name].sample(torch.Generator().manual_seed(100 * step + micro_batch))
    return x.to(dtype) if x.is_floating_point() else x, target


def job_of(name: str, optimizer: Optimizer, dtype: torch.dtype = torch.float32) -> LockstepJob:
    _, train, evaluate = captures(name, dtype)

    def batch(step: int, micro_batch: int) -> dict[ValueId, torch.Tensor]:
        return {ValueId(i): tensor for i, tensor in enumerate(fields(name, step, micro_batch, dtype))}

    return LockstepJob(
        graph=train.graph,
        evaluation=evaluate.graph,
        tensors={**evaluate.tensors, **train.tensors},
        optimizer=optimizer,
        micro_batches=MICRO_BATCHES,
        steps=STEPS,
        seed=11,
        batch=batch,
        held_out=lambda index: batch(99, index),
        held_out_batches=HELD_OUT,
    )


def random_bounds(job: LockstepJob, chance: random.Random) -> list[int]:
    legal = [position for position, fine in enumerate(legal_bounds(job.graph)) if fine][1:-1]
    return [0, *sorted(chance.sample(legal, chance.randint(1, 5))), len(job.graph.operators)]


def differences(job: LockstepJob, bounds: list[int], *, recompute: bool = False) -> list[str]:
    """What is not the same bits as in one stage."""
    one = run_lockstep(job, CPU)
    parts = run_lockstep(dataclasses.replace(job, recompute=recompute), CPU, bounds)
    found = [name for name, tensor in one.tensors.items() if not same(tensor, parts.tensors[name])]
    return found + [name for name in ("losses", "held_out") if getattr(one, name) != getattr(parts, name)]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("optimizer", [ADAMW, SGD], ids=["adamw", "sgd"])
@pytest.mark.parametrize("name", ZOO)
def test_any_partition_gives_the_bits_of_one_stage(name, optimizer):
    job, chance = job_of(name, optimizer), random.Random(f"{name} {optimizer.kind}")
    for _ in range(8):
        bounds = random_bounds(job, chance)
        assert differences(job, bounds) == [], f"cut at {bounds}"


@pytest.mark.parametrize("name", ZOO)
def test_stages_that_recompute_give_the_bits_of_one_that_does_not(name):
    job, chance = job_of(name, ADAMW), random.Random(name)
    for _ in range(2):
        bounds = random_bounds(job, chance)
        assert differences(job, bounds, recompute=True) == [], f"cut at {bounds}"


@pytest.mark.parametrize(
    ("name", "optimizer"), [*((name, replace(ADAMW, ema=0.9)) for name in ZOO), ("gpt", SGD), ("resnet", SGD)]
)
def test_a_run_that_goes_on_from_snapshots_in_other_stages_gives_the_bits_of_one_that_did_not_stop(
    name, optimizer
):
    job, chance = job_of(name, optimizer), random.Random(f"{name} {optimizer.kind}")
    undisturbed = run_lockstep(job, CPU)
    run = Lockstep(job, random_bounds(job, chance), CPU)
    for step in range(STEPS):
        state = {key: tensor for e in run.executors for key, tensor in e.snapshot().items()}
        values = {of: tensor for (part, of), tensor in state.items() if part == "value"}
        moved = dataclasses.replace(job, tensors={**job.tensors, **values})
        run = Lockstep(moved, random_bounds(job, chance), CPU)
        for executor in run.executors:
            executor.resume(state)
        assert run.step(step).loss == undisturbed.losses[step]
    averages = {of: tensor for e in run.executors for of, tensor in e.averages().items()}
    assert averages.keys() == undisturbed.averages.keys()
    for found, expected in ((run.tensors(), undisturbed.tensors), (averages, undisturbed.averages)):
        assert [of for of, tensor in expected.items() if not same(tensor, found[of])] == []


@pytest.mark.parametrize("name", ZOO)
def test_a_cut_at_each_legal_place_gives_the_gradients_of_one_stage(name):
    job = job_of(name, ADAMW)
    last = len(job.graph.operators)
    expected = squares(Lockstep(job, (0, last), CPU))
    for position, legal in enumerate(legal_bounds(job.graph)):
        if legal and 0 < position < last:
            assert squares(Lockstep(job, (0, position, last), CPU)) == expected, f"cut at {position}"


def squares(lockstep: Lockstep) -> list[tuple[int, float]]:
    return sorted((s.parameter, s.total) for report in lockstep.compute(0) for s in report.squares)


@pytest.mark.parametrize("name", [name for name, case in ZOO.items() if case.exact])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_one_stage_computes_what_eager_pytorch_does(name, dtype):
    """In float32 within 1e-6 of the largest entry of all gradients, in float64 1e-12 of each one's own."""
    job = job_of(name, ADAMW, dtype)
    original, train, _ = captures(name, dtype)
    module = copy.deepcopy(original)
    if (
        name == "channels-last"
    ):  # whose own gradients torch may write past their buffer (train.program_kernels)
        module = ResNet().to(dtype)
        module.load_state_dict(original.state_dict())
    lockstep = Lockstep(job, (0, len(job.graph.operators)), CPU)
    losses = []
    for index in range(MICRO_BATCHES):
        x, target = fields(name, 0, index, dtype)
        loss = functional.cross_entropy(module(x), target)
        (loss / MICRO_BATCHES).backward()
        losses.append(loss.item())
    (report,) = lockstep.compute(0)
    assert report.losses == pytest.approx(losses, rel=1e-5)
    eager = {name: parameter.grad for name, parameter in module.named_parameters()}
    assert len(report.squares) == len(eager)
    largest = max(gradient.abs().max() for gradient in eager.values())
    for square in report.squares:
        ours = lockstep.executors[0]._parameters._totals[ValueId(square.parameter)]
        gradient = eager[train.graph.values[square.parameter].name]
        bound = 1e-6 * largest if dtype == torch.float32 else 1e-12 * gradient.abs().max()
        assert (ours - gradient).abs().max() <= bound


def test_an_operator_that_returns_its_own_input_changes_nothing():
    job = as_views("interleaved")
    assert differences(job, [0, 5, 9, 14, len(job.graph.operators)]) == []


def as_views(name: str) -> LockstepJob:
    """A job whose copies are ``contiguous``, which returns the very tensor it is given."""
    job = job_of(name, SGD)
    operators = tuple(
        replace(operator, target="aten.contiguous.default", kwargs=())
        if "clone" in operator.target
        else operator
        for operator in job.graph.operators
    )
    assert operators != job.graph.operators
    return LockstepJob(
        graph=replace(job.graph, operators=operators),
        evaluation=None,
        tensors=job.tensors,
        optimizer=SGD,
        micro_batches=MICRO_BATCHES,
        steps=STEPS,
        seed=11,
        batch=job.batch,
    )


@pytest.mark.parametrize(
    ("part", "without", "name"),
    [
        ("apart", lambda value: value, "views"),
        ("_sliced", lambda _: frozenset(), "thin"),
        ("travels", lambda _: True, "thin"),
    ],
)
def test_what_keeps_the_bits_is_needed(monkeypatch, part, without, name):
    """Each promise of the program, left out, is seen by the comparison above."""
    monkeypatch.setattr(program, part, without)
    job = as_views("interleaved") if name == "views" else job_of(name, SGD)
    chance = random.Random(part)
    assert any(differences(job, random_bounds(job, chance)) for _ in range(12))
