"""Counts against torch's own counter on captured modules, and against formulas on drawn operators."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from swarm.graph.dag import Graph
from swarm.graph.operators import ALLOWED
from swarm.schedule.calls import MOST, Call
from swarm.schedule.cost import graph_costs
from swarm.schedule.flops import SPECIAL, backward_flops, forward_flops, product_flops
from swarm.train.capture import capture


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (2, 8)).transpose(1, 2) for part in self.qkv(x).split(16, -1))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True).flatten()


class Products(nn.Module):
    """Every kind of matrix product, with and without trained operands."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.randn(6, 8))
        self.b = nn.Parameter(torch.randn(3, 8, 5))
        self.bias = nn.Parameter(torch.randn(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = x @ self.a
        second = torch.bmm(first.expand(3, 4, 8), self.b)
        third = torch.addmm(self.bias, second[0], self.b[0].T @ self.b[1])
        return torch.baddbmm(third.expand(3, 4, 5), second, self.b.mT @ self.b)


MODULES: dict[str, tuple[nn.Module, torch.Tensor]] = {
    "linear": (nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 4, bias=False)), torch.randn(5, 8)),
    "products": (Products(), torch.randn(4, 6)),
    "conv": (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(8, 8, (1, 3), dilation=2)
        ),
        torch.randn(2, 3, 9, 11),
    ),
    "conv1d": (nn.Sequential(nn.Conv1d(3, 6, 5), nn.Conv1d(6, 4, 1, bias=False)), torch.randn(2, 3, 12)),
    "conv3d": (nn.Sequential(nn.Conv3d(2, 4, 3, padding=1), nn.Conv3d(4, 2, 2)), torch.randn(1, 2, 4, 5, 6)),
    "transposed": (
        nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2), nn.ConvTranspose2d(6, 2, 2)),
        torch.randn(2, 4, 5, 5),
    ),
}


def total(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (output.sum() - target) ** 2


def captured(module: nn.Module, example: torch.Tensor) -> Graph:
    return capture(module, (example, torch.zeros(())), loss=total).graph


def counted(module: nn.Module, example: torch.Tensor) -> tuple[int, int]:
    with FlopCounterMode(display=False) as counter:
        loss = total(module(example), torch.zeros(()))
        forward = counter.get_total_flops()
        loss.backward()
    return forward, counter.get_total_flops() - forward


@pytest.mark.parametrize("name", MODULES)
def test_products_and_convolutions_count_what_torch_counts(name: str):
    module, example = MODULES[name]
    graph = captured(module, example)
    calls = [Call(graph, operator) for operator in graph.operators]
    products = [call for call in calls if product_flops(call) is not None]
    forward, backward = counted(module, example)
    assert sum(forward_flops(call) for call in products) == forward
    assert sum(backward_flops(call) for call in products) == backward


def test_attention_counts_two_products_forward_and_five_backward():
    graph = captured(Attention(), torch.randn(3, 10, 16))
    (call,) = [
        call
        for operator in graph.operators
        if (call := Call(graph, operator)).name == "scaled_dot_product_attention"
    ]
    product = 2 * 3 * 2 * 10 * 10 * 8
    assert forward_flops(call) == 2 * product
    assert backward_flops(call) == 5 * product


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_multiply_every_weight_at_every_step(kind: Callable[..., nn.Module]):
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = kind(6, 5, num_layers=2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)[0]

    module = Last()
    graph = captured(module, torch.randn(3, 7, 6))
    products = sum(product_flops(Call(graph, operator)) or 0.0 for operator in graph.operators)
    weights = sum(p.numel() for p in module.parameters() if p.dim() > 1)
    assert products == 2 * 3 * 7 * weights


def drawn(sketch, target: str, reads: list[object], *shape: int, **facts: object) -> Call:
    sketch.op(target, reads, *shape, **facts)
    graph = sketch.graph()
    return Call(graph, graph.operators[-1])


def test_einsum_counts_the_product_of_all_sizes(sketch):
    a, b = sketch.leaf("parameter", 2, 3, 4), sketch.leaf("parameter", 4, 5)
    assert (
        forward_flops(drawn(sketch, "einsum.default", ["bik, kj -> bij", [a, b]], 2, 3, 5))
        == 2 * 2 * 3 * 4 * 5
    )


def test_a_grouped_convolution_sums_over_one_group_both_ways(sketch):
    x, weight = sketch.leaf("input", 2, 8, 9, 9, trained=True), sketch.leaf("parameter", 12, 2, 3, 3)
    call = drawn(sketch, "conv2d.default", [x, weight, None, ["1"], ["1"], ["1"], "4"], 2, 12, 9, 9)
    assert forward_flops(call) == 2 * (2 * 12 * 9 * 9) * (2 * 3 * 3)
    assert backward_flops(call) == 2 * forward_flops(call)


def test_views_are_free_and_other_functions_count_their_elements(sketch):
    x = sketch.leaf("input", 6, 7, trained=True)
    assert forward_flops(drawn(sketch, "transpose.int", [x, "0", "1"], 7, 6)) == 0
    assert forward_flops(drawn(sketch, "add.Tensor", [x, x], 6, 7)) == 42
    assert forward_flops(drawn(sketch, "sum.default", [x])) == 42
    assert forward_flops(drawn(sketch, "gelu.default", [x], 6, 7)) == 42 * SPECIAL


def test_backward_costs_nothing_where_no_gradient_flows(sketch):
    x, frozen = sketch.leaf("input", 6, 7), sketch.leaf("parameter", 7, 7, trained=False)
    assert backward_flops(drawn(sketch, "linear.default", [x, frozen], 6, 7, trained=False)) == 0


def test_backward_of_a_product_costs_once_for_each_operand_that_needs_a_gradient(sketch):
    x, h = sketch.leaf("input", 6, 7), sketch.leaf("input", 6, 7, trained=True)
    weight, frozen = sketch.leaf("parameter", 7, 7), sketch.leaf("parameter", 7, 7, trained=False)
    bias = sketch.leaf("parameter", 7)
    forward = 2 * 6 * 7 * 7
    for reads, times in (([x, weight, bias], 1), ([h, weight, bias], 2), ([h, frozen, bias], 1)):
        assert backward_flops(drawn(sketch, "linear.default", reads, 6, 7)) == times * forward


def test_the_gradient_of_an_embedding_fills_the_whole_table(sketch):
    table, tokens = sketch.leaf("parameter", 1000, 8), sketch.leaf("input", 5, dtype="int64")
    call = drawn(sketch, "embedding.default", [table, tokens], 5, 8)
    assert (forward_flops(call), backward_flops(call)) == (40, 8040)


SHAPES = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 2**48)), max_size=16).map(tuple)


@given(
    target=st.sampled_from(sorted(ALLOWED)), shapes=st.lists(SHAPES, max_size=5), made=SHAPES, data=st.data()
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_call_has_finite_costs(target, shapes, made, data, make_sketch):
    sketch = make_sketch()
    leaves = [sketch.leaf(data.draw(st.sampled_from(["input", "parameter"])), *shape) for shape in shapes]
    reads = data.draw(
        st.lists(st.one_of(st.sampled_from(leaves) if leaves else st.none(), st.text(max_size=9)))
    )
    sketch.op(target.removeprefix("aten."), [*reads, leaves], *made)
    costs = graph_costs(sketch.graph())
    for prefix in (costs.forward, costs.backward):
        assert 0 <= prefix[-1] <= MOST
    assert 0 <= costs.kept[0].hidden <= MOST
    assert 0 <= costs.share(0, 1) <= 1
