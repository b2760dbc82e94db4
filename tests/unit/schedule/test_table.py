from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.graph.cut import crossings, legal_bounds
from swarm.graph.dag import Graph
from swarm.schedule import table as module
from swarm.schedule.cost import graph_costs
from swarm.schedule.memory import MemoryModel
from swarm.schedule.table import spread, stage_table
from swarm.wire.records.manifest import Optimizer

RandomGraph = Callable[[int, int], Graph]


@pytest.mark.parametrize("seed", range(5))
def test_every_stage_is_in_the_table_with_what_it_costs(
    random_graph: RandomGraph, adamw: Optimizer, seed: int
):
    graph = random_graph(seed, 12)
    found, costs, crossing = stage_table(graph, adamw), graph_costs(graph), crossings(graph)
    model = MemoryModel(graph, costs, adamw)
    assert found.positions.tolist() == [p for p, legal in enumerate(legal_bounds(graph)) if legal]
    for start in range(found.places):
        position = int(found.positions[start])
        assert found.forward_bytes[start] == crossing.forward_bytes[position]
        assert found.backward_bytes[start] == crossing.backward_bytes[position]
        for end in range(start + 1, found.places):
            number, last = found.index(start, end), int(found.positions[end])
            assert (found.starts[number], found.ends[number]) == (start, end)
            assert found.stage_flops[number] == costs.flops[last] - costs.flops[position]
            assert np.ceil(found.fixed[number] + 3 * found.held[number]) == model.stage_bytes(
                position, last, 3
            )


def test_operators_that_share_a_changed_buffer_have_no_place_between_them(sketch, sgd: Optimizer):
    x, mean = sketch.leaf("input", 4), sketch.leaf("buffer", 4)
    a = sketch.op("mul.Tensor", [x, mean], 4, trained=False)
    b = sketch.op("gelu.default", [a], 4, trained=False)
    c = sketch.op("add.Tensor", [b, mean], 4, trained=False)
    sketch.op("sum.default", [c], trained=False)
    sketch.update(mean, c)
    assert stage_table(sketch.graph(), sgd).positions.tolist() == [0, 3, 4]


def test_a_thinned_table_has_the_same_stages_between_fewer_places(
    random_graph: RandomGraph, adamw: Optimizer
):
    full = stage_table(random_graph(3, 40), adamw)
    thin = full.thinned(9)
    assert thin.places <= 9
    assert {0, int(full.positions[-1])} < set(thin.positions.tolist()) < set(full.positions.tolist())
    place = {int(position): index for index, position in enumerate(full.positions)}
    for number, (start, end) in enumerate(zip(thin.starts, thin.ends, strict=True)):
        same = full.index(place[int(thin.positions[start])], place[int(thin.positions[end])])
        assert (thin.fixed[number], thin.held[number]) == (full.fixed[same], full.held[same])
        assert thin.stage_flops[number] == full.stage_flops[same]
    assert full.thinned(full.places) is full


def test_a_graph_with_too_many_places_keeps_the_cheap_ones(
    random_graph: RandomGraph, adamw: Optimizer, monkeypatch: pytest.MonkeyPatch
):
    graph = random_graph(1, 60)
    monkeypatch.setattr(module, "MAX_PLACES", 12)
    found = stage_table(graph, adamw)
    assert found.places <= 12
    assert (found.positions[0], found.positions[-1]) == (0, len(graph.operators))
    chosen = np.mean(found.forward_bytes[1:-1])
    assert chosen < np.mean(crossings(graph).forward_bytes[1:-1])


@given(st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=2, max_size=80), st.integers(3, 40))
def test_spread_keeps_the_ends_and_no_more_than_asked(steps: list[tuple[float, float]], places: int):
    flops = np.cumsum([step for step, _ in steps])
    traffic = np.array([size for _, size in steps])
    kept = spread(flops, traffic, places)
    assert len(kept) == len(steps) if len(steps) <= places else len(kept) <= places
    assert (kept[0], kept[-1]) == (0, len(steps) - 1)
    assert np.all(np.diff(kept) > 0)
