"""What backward keeps, against the tensors that autograd really saves."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.schedule.cost import graph_costs
from swarm.schedule.memory import MemoryModel
from swarm.train.capture import capture


class Block(nn.Module):
    """One pre-norm transformer block of width 32 with 4 heads."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 128), nn.Linear(128, 32)
        self.dropout = dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = self.qkv(self.first(x)).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(-2)
        x = x + functional.dropout(self.out(mixed), self.dropout)
        return x + self.down(functional.gelu(self.up(self.second(x))))


class Embedded(nn.Module):
    def __init__(self, inner: nn.Module, classes: int) -> None:
        super().__init__()
        self.table, self.inner = nn.Embedding(50, 32), inner
        self.head = nn.Linear(32, classes)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.inner(self.table(tokens))).flatten(0, -2)


class Convolved(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.GroupNorm(2, 8),
            nn.SiLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


class Pointwise(nn.Module):
    """A chain of functions, each with its own habit of keeping."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(x * self.scale) + 1.0
        x = torch.cat([torch.exp(x), torch.sin(x)], -1)
        x = x / (x.mean(-1, keepdim=True) + 2.0)
        return torch.softmax(-x.clone(), -1)


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights = torch.softmax(self.query(x) @ self.key(x).mT, -1)
        return torch.where(x > 0, weights @ x, x)


def tokens(*shape: int) -> torch.Tensor:
    return torch.randint(0, 50, shape)


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

CASES: dict[str, tuple[nn.Module, torch.Tensor, torch.Tensor, Loss]] = {
    "transformer": (Embedded(Block(), 50), tokens(2, 12), tokens(24), functional.cross_entropy),
    "dropout": (Embedded(Block(0.1), 50), tokens(2, 12), tokens(24), functional.cross_entropy),
    "convolutions": (
        Convolved(),
        torch.randn(4, 1, 12, 12),
        torch.randint(0, 10, (4,)),
        functional.cross_entropy,
    ),
    "pointwise": (Pointwise(), torch.randn(5, 16), torch.randn(5, 32), functional.mse_loss),
    "scores": (Scores(), torch.randn(3, 12, 16), torch.randn(3, 12, 16), functional.mse_loss),
}


def saved_bytes(module: nn.Module, example: torch.Tensor, target: torch.Tensor, loss: Loss) -> int:
    """Bytes of all memory that autograd keeps, parameters apart, each once."""
    owned = {tensor.untyped_storage().data_ptr() for tensor in (*module.parameters(), *module.buffers())}
    found: dict[int, torch.UntypedStorage] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in owned:
            found[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss(module(example), target)
    return sum(storage.nbytes() for storage in found.values())


@pytest.mark.parametrize("name", CASES)
def test_a_whole_model_keeps_what_autograd_saves(name: str, adamw):
    module, example, target, loss = CASES[name]
    graph = capture(module, (example, target), loss=loss).graph
    held = MemoryModel(graph, graph_costs(graph), adamw).rows(0).held[len(graph.operators)]
    assert held == pytest.approx(saved_bytes(module, example, target, loss), rel=0.05)


def test_an_operator_that_no_gradient_passes_keeps_nothing(sketch):
    x = sketch.leaf("input", 4, 4)
    sketch.op("gelu.default", [x], 4, 4, trained=False)
    (kept,) = graph_costs(sketch.graph()).kept
    assert (kept.values, kept.hidden) == ((), 0.0)


def test_a_product_keeps_only_the_factors_that_a_gradient_needs(sketch):
    x, h = sketch.leaf("input", 4, 4), sketch.leaf("input", 4, 4, trained=True)
    frozen = sketch.leaf("parameter", 4, 4, trained=False)
    sketch.op("mul.Tensor", [x, h], 4, 4)
    sketch.op("linear.default", [h, frozen], 4, 4)
    sketch.op("mul.Tensor", [h, h], 4, 4)
    kept = graph_costs(sketch.graph()).kept
    assert [entry.values for entry in kept] == [(0,), (2,), (1,)]


def test_attention_that_drops_out_keeps_its_probabilities_before_and_after(sketch):
    q = sketch.leaf("input", 2, 3, 10, 8, trained=True)
    k, v = sketch.leaf("input", 2, 3, 12, 8), sketch.leaf("input", 2, 3, 12, 8)
    sketch.op("scaled_dot_product_attention.default", [q, k, v, None, 0.1], 2, 3, 10, 8, draws=True)
    sketch.op("scaled_dot_product_attention.default", [q, k, v], 2, 3, 10, 8)
    dropping, plain = graph_costs(sketch.graph()).kept
    assert dropping.hidden == 2 * (2 * 3 * 10 * 12) * 4
    assert plain.hidden == 2 * 3 * 10 * 4
    assert plain.values == (0, 1, 2, 4)


@pytest.mark.parametrize(
    ("frames", "hidden"),
    [(700, (17 - 1) * 700 * 2 * 5 * 4), (7, 7 * 4096)],
    ids=["apart from its output", "whole pages"],
)
def test_a_recurrent_layer_keeps_its_gates_at_every_step(sketch, frames, hidden):
    x, w = sketch.leaf("input", frames, 2, 6), sketch.leaf("parameter", 20, 6)
    h = sketch.leaf("constant", 1, 2, 5)
    arguments = [x, [h, h], [w], True, "1", "0.0", True, False, False]
    sketch.op("lstm.input", arguments, frames, 2, 5)
    (kept,) = graph_costs(sketch.graph()).kept
    assert kept.hidden == hidden
