import random
from itertools import pairwise

import pytest

from swarm.errors import LocalError
from swarm.graph.cut import (
    crossings,
    cut,
    is_trained,
    legal_bounds,
    sent_bytes,
    shared_parameters,
    trained_uses,
)
from swarm.graph.dag import Graph, TensorSpec, operator_inputs, producers
from swarm.graph.routing import sourceless
from swarm.graph.stage import SharedUse, Stage


def edges(stage: Stage, graph: Graph, direction: str) -> list[tuple[str, int]]:
    found = stage.incoming if direction == "in" else stage.outgoing
    return [(graph.values[edge.value].name, edge.stage) for edge in found]


def chain(sketch) -> Graph:
    """x -> a -> b -> c -> loss, each with a parameter of its own."""
    sketch.leaf("input", "x")
    for name in "pqrs":
        sketch.leaf("parameter", name)
    return sketch.op("x p", "a").op("a q", "b").op("b r", "c").op("c s", "loss").graph()


def test_a_stage_has_the_operators_between_its_bounds_and_what_they_read(sketch):
    graph = chain(sketch)
    first, second = cut(graph, [0, 3, 4])
    assert first.operators == (0, 1, 2)
    assert [graph.values[use.value].name for use in first.parameters] == ["p", "q", "r"]
    assert [use.operators for use in first.parameters] == [(0,), (1,), (2,)]
    assert all(use.owned for use in first.parameters)
    assert [graph.values[v].name for v in first.inputs] == ["x"]
    assert edges(first, graph, "out") == [("c", 1)]
    assert edges(second, graph, "in") == [("c", 0)]
    assert (first.loss, second.loss) == (False, True)
    assert second.inputs == ()


def test_a_value_with_several_readers_is_relayed_from_each_to_the_next(sketch):
    graph = (
        sketch.leaf("input", "x")
        .op("x", "a")
        .op("a", "b")
        .op("b", "c")
        .op("a c", "d")
        .op("a d", "loss")
        .graph()
    )
    stages = cut(graph, [0, 1, 2, 3, 4, 5])
    hops = [
        (s.index, edge.stage) for s in stages for edge in s.outgoing if graph.values[edge.value].name == "a"
    ]
    assert hops == [(0, 1), (1, 3), (3, 4)]
    assert edges(stages[2], graph, "in") == [("b", 1)]
    assert edges(stages[4], graph, "in") == [("a", 3), ("d", 3)]


def test_an_edge_says_whether_a_gradient_comes_back(sketch):
    graph = sketch.leaf("input", "x").op("x", "mask", trained=False).op("x", "a").op("a mask", "loss").graph()
    first, _ = cut(graph, [0, 2, 3])
    assert [(graph.values[e.value].name, e.gradient) for e in first.outgoing] == [
        ("mask", False),
        ("a", True),
    ]


def test_sourceless_operators_run_where_they_are_needed_and_nowhere_else(sketch):
    sketch.leaf("input", "x").leaf("constant", "k")
    sketch.op("", "range", trained=False).op("range k", "mask", trained=False)
    graph = sketch.op("x", "a").op("a mask", "b").op("b mask", "loss").graph()
    stages = cut(graph, [0, 2, 3, 4, 5])
    assert [stage.operators for stage in stages] == [(), (2,), (0, 1, 3), (0, 1, 4)]
    assert [stage.recomputed for stage in stages] == [(), (), (0, 1), (0, 1)]
    assert [len(stage.constants) for stage in stages] == [0, 0, 1, 1]
    assert edges(stages[3], graph, "in") == [("b", 2)]


def test_a_random_operator_is_never_recomputed(sketch):
    graph = (
        sketch.leaf("input", "x")
        .op("", "noise", random=True)
        .op("x noise", "a")
        .op("a noise", "loss")
        .graph()
    )
    stages = cut(graph, [0, 1, 2, 3])
    assert [stage.operators for stage in stages] == [(0,), (1,), (2,)]
    assert edges(stages[0], graph, "out") == [("noise", 1)]


def test_operators_that_share_a_changed_buffer_cannot_be_parted(sketch):
    sketch.leaf("input", "x").leaf("buffer", "mean").leaf("buffer", "still")
    sketch.op("x", "a").op("a mean still", "b").op("b", "c").op("c mean", "new").op("b still new", "loss")
    graph = sketch.graph(updates=[("mean", "new")])
    assert legal_bounds(graph) == (True, True, False, False, True, True)
    with pytest.raises(LocalError, match="a cut at 2 would part"):
        cut(graph, [0, 2, 5])
    first, second, third = cut(graph, [0, 1, 4, 5])
    assert [graph.values[use.value].name for use in second.buffers] == ["mean", "still"]
    assert [update.buffer for update in second.updates] == [graph.updates[0].buffer]
    assert first.updates == third.updates == ()
    assert [(use.value, use.owned) for use in third.buffers] == [(2, False)]


def test_a_buffer_that_is_replaced_but_never_read_belongs_to_the_maker_of_its_value(sketch):
    sketch.leaf("input", "x").leaf("buffer", "last")
    graph = sketch.op("x", "a").op("a", "b").op("b", "loss").graph(updates=[("last", "b")])
    stages = cut(graph, [0, 1, 2, 3])
    assert [len(stage.updates) for stage in stages] == [0, 1, 0]
    assert [(use.operators, use.owned) for use in stages[1].buffers] == [((), True)]


def test_a_buffer_may_become_an_input_a_parameter_or_a_sourceless_value(sketch):
    sketch.leaf("input", "x").leaf("parameter", "p").leaf("buffer", "u").leaf("buffer", "v").leaf(
        "buffer", "w"
    )
    sketch.op("x", "a").op("", "range", trained=False).op("a p", "b").op("b u w", "loss")
    graph = sketch.graph(updates=[("u", "x"), ("v", "p"), ("w", "range")])
    first, second, third = cut(graph, [0, 1, 3, 4])
    assert [graph.values[update.buffer].name for update in third.updates] == ["u", "w"]
    assert [graph.values[v].name for v in third.inputs] == ["x"]
    assert third.recomputed == (1,)
    assert [graph.values[update.buffer].name for update in second.updates] == ["v"]
    assert first.updates == ()


def test_nothing_after_the_loss_can_be_cut_off(sketch):
    graph = sketch.leaf("input", "x").op("x", "a").op("a", "loss").op("a", "extra").graph(outputs=["extra"])
    assert legal_bounds(graph) == (True, True, False, True)
    assert cut(graph, [0, 1, 3])[1].outputs == (graph.outputs[0],)


@pytest.mark.parametrize("bounds", [[], [0], [1, 4], [0, 3], [0, 2, 2, 4], [0, 3, 2, 4], [0, 5]])
def test_bounds_that_are_no_partition_are_refused(sketch, bounds):
    with pytest.raises(LocalError, match="bounds must rise from 0 to 4"):
        cut(chain(sketch), bounds)


def test_a_parameter_of_several_operators_is_shared_and_owned_by_the_first(sketch):
    sketch.leaf("input", "x").leaf("parameter", "tied").leaf("parameter", "own")
    sketch.leaf("parameter", "frozen", trained=False)
    sketch.op("x tied frozen", "a").op("a tied", "watch", trained=False).op("a own", "b")
    graph = sketch.op("b tied frozen", "loss").graph(outputs=["watch"])
    stages = cut(graph, [0, 1, 3, 4])
    (shared,) = shared_parameters(graph, stages)
    assert graph.values[shared.parameter].name == "tied"
    assert shared.owner == 0
    assert shared.uses == (SharedUse(operator=0, stage=0), SharedUse(operator=3, stage=2))
    assert trained_uses(graph) == {1: (0, 3), 2: (2,)}
    assert not is_trained(graph, 1)
    held = [[(graph.values[u.value].name, u.owned) for u in stage.parameters] for stage in stages]
    assert held == [
        [("tied", True), ("frozen", True)],
        [("tied", False), ("own", True)],
        [("tied", False), ("frozen", False)],
    ]


def test_crossings_price_a_cut_as_its_edges_do_where_nothing_is_relayed(sketch):
    graph = chain(sketch)
    found = crossings(graph)
    assert found.forward_bytes == (0, 24, 24, 24, 0)
    assert found.backward_bytes == found.forward_bytes
    assert [graph.values[v].name for v in found.values(2)] == ["b"]
    assert found.values(0) == found.values(4) == ()


def test_a_crossing_value_counts_once_and_not_where_it_is_recomputed(sketch):
    sketch.leaf("input", "x").op("", "range", trained=False).op("x", "a").op(
        "x", "ids", trained=False, dtype="int64"
    )
    graph = sketch.op("a ids range", "b").op("a ids range b", "loss").graph()
    found = crossings(graph)
    assert found.forward_bytes == (0, 0, 24, 24 + 48, 24 + 48 + 24, 0)
    assert found.backward_bytes == (0, 0, 24, 24, 48, 0)


def test_repeats_along_a_dimension_are_not_sent():
    assert sent_bytes(TensorSpec(dtype="float32", shape=(5, 3), strides=(0, 1))) == 12


def test_any_partition_of_a_random_graph_runs_every_operator_once_and_feeds_it(sketch):
    chance = random.Random(7)
    sketch.leaf("input", "x").leaf("parameter", "p").leaf("buffer", "u")
    names = ["x"]
    for index in range(30):
        reads = chance.sample(names, min(len(names), 3)) if index % 6 else []
        reads += ["p"] if index % 7 == 3 else []
        reads += ["u"] if index in {12, 13} else []
        sketch.op(" ".join(reads), f"v{index}", random=index % 12 == 6)
        names.append(f"v{index}")
    graph = sketch.op(" ".join(names[-5:]), "loss").graph(updates=[("u", "v13")])
    free, makers = sourceless(graph), producers(graph)
    legal = [position for position, fine in enumerate(legal_bounds(graph)) if fine][1:-1]
    for _ in range(50):
        inner = sorted(chance.sample(legal, chance.randint(0, 5)))
        stages = cut(graph, [0, *inner, 31])
        ran = [index for stage in stages for index in stage.operators if index not in stage.recomputed]
        assert ran == [index for index in range(31) if index not in free]
        for stage in stages:
            there = {
                *stage.inputs,
                *stage.constants,
                *(use.value for use in (*stage.parameters, *stage.buffers)),
            }
            there |= {edge.value for edge in stage.incoming}
            for index in stage.operators:
                assert there.issuperset(operator_inputs(graph.operators[index]))
                there.update(graph.operators[index].outputs)
            assert there.issuperset(edge.value for edge in stage.outgoing)
            assert len({edge.value for edge in stage.incoming}) == len(stage.incoming)
            assert len({edge.value for edge in stage.outgoing}) == len(stage.outgoing)
        sent = sorted((e.value, s.index, e.stage) for s in stages for e in s.outgoing)
        assert sent == sorted((e.value, e.stage, s.index) for s in stages for e in s.incoming)
        owned = [use.value for s in stages for use in (*s.parameters, *s.buffers) if use.owned]
        assert sorted(owned) == [1, 2]
        adjacent = crossings(graph)
        for position, (before, after) in zip(inner, pairwise(stages), strict=True):
            relayed = {e.value for e in after.incoming if e.stage == before.index}
            assert relayed <= set(adjacent.values(position))
        assert {v for v, home in makers.items() if home in free}.isdisjoint(value for value, *_ in sent)
