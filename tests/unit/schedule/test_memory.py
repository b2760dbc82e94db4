"""The memory model against the list in its docstring, counted again on the stages that ``cut`` makes."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from msgspec.structs import replace

from swarm.graph.cut import cut, legal_bounds, sent_bytes, shared_parameters
from swarm.graph.dag import Graph, operator_inputs
from swarm.graph.stage import Stage
from swarm.schedule.calls import Call, aliases
from swarm.schedule.cost import graph_costs
from swarm.schedule.memory import MemoryModel, optimizer_copies
from swarm.wire.records.manifest import Optimizer

RandomGraph = Callable[[int, int], Graph]


def counted_standing(graph: Graph, stage: Stage, stages: tuple[Stage, ...], copies: int) -> int:
    def size(value: int) -> int:
        return graph.values[value].spec.nbytes

    changed = {update.buffer for update in graph.updates}
    total = sum(size(use.value) for use in stage.parameters) + sum(size(value) for value in stage.constants)
    total += sum(size(use.value) * (2 if use.value in changed else 1) for use in stage.buffers)
    shared = {parameter.parameter: parameter for parameter in shared_parameters(graph, stages)}
    for use in stage.parameters:
        if not graph.values[use.value].differentiable:
            continue
        if use.value in shared:
            uses = shared[use.value].uses
            owner = shared[use.value].owner == stage.index
            gradients = len(uses) if owner else sum(other.stage == stage.index for other in uses)
        else:
            owner, gradients = True, 1
        total += size(use.value) * (gradients + (copies if owner else 0))
    for edge in (*stage.incoming, *stage.outgoing):
        total += sent_bytes(graph.values[edge.value].spec)
    return total


def sources_of(graph: Graph) -> dict[int, int]:
    """The value in whose memory each view lies."""
    return {
        made: source
        for operator in graph.operators
        for made, source in aliases(Call(graph, operator)).items()
    }


def counted_held(graph: Graph, stage: Stage) -> float:
    """Every memory once: received, read from the dataset, made again here, or made here and kept or sent."""
    kept, sources = graph_costs(graph).kept, sources_of(graph)
    own = [index for index in stage.operators if index not in stage.recomputed]
    made_here = {graph.operators[index].outputs[0] for index in own}

    def memory(value: int, within: Callable[[int], bool] = lambda _: True) -> int:
        while value in sources and within(value):
            value = sources[value]
        return value

    def is_needed(value: int) -> bool:
        return graph.values[value].differentiable or memory(value) in saved_anywhere

    saved_anywhere = {memory(value) for entry in kept for value in entry.values}
    again = {graph.operators[index].outputs[0] for index in stage.recomputed}
    read = {value for index in own for value in operator_inputs(graph.operators[index])}
    foreign = {edge.value for edge in stage.incoming} | {v for v in (*stage.inputs, *again) if v in read}
    saved = {value for index in own for value in kept[index].values}
    sent = {edge.value for edge in stage.outgoing if edge.gradient}
    local = {memory(value, lambda v: v in made_here) for value in (saved | sent) & made_here}
    held = {value for value in foreign if is_needed(value)} | (local & made_here)
    return sum(graph.values[v].spec.nbytes for v in held) + sum(kept[index].hidden for index in own)


@pytest.mark.parametrize("seed", range(40))
def test_every_stage_needs_what_the_docstring_lists(random_graph: RandomGraph, adamw: Optimizer, seed: int):
    graph = random_graph(seed, 14)
    model = MemoryModel(graph, graph_costs(graph), adamw)
    legal = [position for position, fine in enumerate(legal_bounds(graph)) if fine]
    checked = 0
    for a, b in pairwise(legal[:: 1 + seed % 4]):
        bounds = sorted({0, a, b, len(graph.operators)})
        stages = cut(graph, bounds)
        for first, last, stage in zip(bounds, bounds[1:], stages, strict=False):
            own = set(stage.operators) - set(stage.recomputed)
            if not own:
                continue
            rows = model.rows(first)
            whole = set(range(first, last)) == own
            standing, held = counted_standing(graph, stage, stages, 2), counted_held(graph, stage)
            if whole:
                assert rows.standing[last] == pytest.approx(standing)
            assert rows.held[last] == pytest.approx(held)
            checked += 1
    assert checked


def test_optimizers_keep_what_they_keep(adamw: Optimizer, sgd: Optimizer):
    momentum = Optimizer(kind="sgd", lr=1.0, schedule=sgd.schedule, momentum=0.9)
    assert [optimizer_copies(optimizer) for optimizer in (adamw, sgd, momentum)] == [2, 0, 1]
    averaged = [replace(optimizer, ema=0.999) for optimizer in (adamw, sgd, momentum)]
    assert [optimizer_copies(optimizer) for optimizer in averaged] == [3, 1, 2]


def tied(sketch) -> Graph:
    """table (8 KiB) -> embedding; linear with a weight (4 KiB); linear with the table again; loss."""
    tokens = sketch.leaf("input", 16, dtype="int64")
    table, weight = sketch.leaf("parameter", 64, 32), sketch.leaf("parameter", 32, 32)
    h = sketch.op("embedding.default", [table, tokens], 16, 32)
    h = sketch.op("linear.default", [h, weight], 16, 32)
    h = sketch.op("linear.default", [h, table], 16, 64)
    sketch.op("sum.default", [h])
    return sketch.graph()


def test_a_stage_by_hand(sketch, adamw: Optimizer):
    graph = tied(sketch)
    model = MemoryModel(graph, graph_costs(graph), adamw)
    table, weight, activation = 64 * 32 * 4, 32 * 32 * 4, 16 * 32 * 4
    # All in one: both tensors with optimizer state, one accumulator for the weight and two for the table.
    # The worst moment is the step boundary, once what was held is gone: the sum of the gradients of both uses
    # of the table, and its numbers in float64.
    held = 16 * 8 + activation + activation  # tokens, and the inputs of both products
    boundary = table + 64 * 32 * 8
    assert model.stage_bytes(0, 4, 1) == 5 * table + 4 * weight + boundary
    assert model.stage_bytes(0, 4, 2) == 5 * table + 4 * weight + boundary + held
    # The second half holds the table to use it: its value and the gradient of its own use.
    # The worst moment is the backward of the product: the gradients of its output, and of the table.
    assert model.stage_bytes(2, 4, 3) == 2 * table + activation + 3 * activation + 2 * activation + table
    # The first half owns it, and takes in the other's gradient. What it sends it keeps until backward.
    assert model.stage_bytes(0, 2, 2) == 5 * table + 4 * weight + activation + boundary + held


def test_a_changed_buffer_counts_twice(sketch, sgd: Optimizer):
    x, mean = sketch.leaf("input", 4, 8), sketch.leaf("buffer", 100)
    fresh = sketch.op("mul.Tensor", [mean, mean], 100, trained=False)
    h = sketch.op("gelu.default", [x], 4, 8, trained=False)
    sketch.op("sum.default", [h], trained=False)
    without = sketch.graph()
    sketch.update(mean, fresh)
    changed = sketch.graph()
    before, after = (MemoryModel(g, graph_costs(g), sgd).stage_bytes(0, 3, 1) for g in (without, changed))
    assert after - before == 400


@pytest.mark.parametrize("seed", range(10))
def test_memory_grows_with_depth_and_with_more_operators_of_a_chain(
    random_graph: RandomGraph, adamw: Optimizer, sgd: Optimizer, seed: int
):
    graph = random_graph(seed, 12)
    count = len(graph.operators)
    model, lean = (MemoryModel(graph, graph_costs(graph), optimizer) for optimizer in (adamw, sgd))
    for first in range(count):
        rows = model.rows(first)
        for last in range(first + 1, count + 1):
            assert rows.held[last] >= 0
            assert model.stage_bytes(first, last, 2) >= model.stage_bytes(first, last, 1)
            assert model.stage_bytes(first, last, 1) >= lean.stage_bytes(first, last, 1)
    assert model.stage_bytes(0, count, 1) >= max(
        sum(graph.values[v].spec.nbytes for v in graph.of_kind("parameter")), 1
    )
