from swarm.graph.cut import cut
from swarm.graph.dag import Graph
from swarm.graph.evaluation import evaluation_stages
from swarm.graph.stage import Stage


def places(stages: tuple[Stage, ...]) -> list[tuple[int, ...]]:
    return [stage.operators for stage in stages]


def names(graph: Graph, values: object) -> list[str]:
    return [graph.values[value].name for value in values]  # type: ignore[attr-defined]


def leaves(sketch, *, buffers: str = ""):
    sketch.leaf("input", "x").leaf("input", "target")
    for name in "pqr":
        sketch.leaf("parameter", name)
    for name in buffers.split():
        sketch.leaf("buffer", name)
    return sketch


def test_an_operator_runs_where_its_parameters_live_and_others_follow_their_inputs(sketch, other):
    train = (
        leaves(sketch)
        .op("x p", "a")
        .op("a", "a2")
        .op("a2 q", "b")
        .op("b r", "c")
        .op("c target", "loss")
        .graph()
    )
    stages = cut(train, [0, 2, 3, 5])
    graph = leaves(other).op("x p", "d").op("d q", "e").op("e", "f").op("f r", "g").op("g target", "loss")
    found = evaluation_stages(train, stages, graph.graph(mode="evaluate"))
    assert places(found) == [(0,), (1, 2), (3, 4)]
    assert [names(train, stage.inputs) for stage in found] == [["x"], [], ["target"]]
    assert [stage.loss for stage in found] == [False, False, True]
    assert not any(edge.gradient for stage in found for edge in stage.outgoing)


def test_a_shared_parameter_is_used_in_the_first_of_its_stages_that_can(sketch, other):
    train = leaves(sketch).op("x p", "a").op("a q", "b").op("b r", "c").op("c p target", "loss").graph()
    stages = cut(train, [0, 1, 2, 4])
    graph = leaves(other).op("x p", "a").op("a r", "b").op("b p", "c").op("c target", "loss")
    assert places(evaluation_stages(train, stages, graph.graph(mode="evaluate"))) == [(0,), (), (1, 2, 3)]


def test_what_needs_model_inputs_alone_runs_where_it_is_first_needed(sketch, other):
    train = leaves(sketch).op("x p", "a").op("a q", "b").op("b r target", "loss").graph()
    stages = cut(train, [0, 1, 2, 3])
    graph = leaves(other).op("target", "t", trained=False).op("t", "u", trained=False).op("x p", "a")
    graph.op("x", "mask", trained=False).op("a q mask", "b").op("b r u mask", "loss")
    found = evaluation_stages(train, stages, graph.graph(mode="evaluate"))
    assert places(found) == [(2,), (3, 4), (0, 1, 5)]
    assert [names(train, stage.inputs) for stage in found] == [["x"], ["x"], ["target"]]


def test_a_changed_tensor_that_is_read_later_than_it_lives_travels_there(sketch, other):
    train = (
        leaves(sketch, buffers="mean")
        .op("x p", "a")
        .op("a mean", "new")
        .op("a q", "b")
        .op("b r target", "loss")
    )
    train = train.graph(updates=[("mean", "new")])
    stages = cut(train, [0, 2, 3, 4])
    graph = (
        leaves(other, buffers="mean")
        .op("x p", "a")
        .op("a q", "b")
        .op("b mean", "c")
        .op("c r p target", "loss")
    )
    graph = graph.graph(mode="evaluate")
    found = evaluation_stages(train, stages, graph)
    assert places(found) == [(0,), (1, 2), (3,)]
    assert names(graph, [edge.value for edge in found[0].outgoing]) == ["p", "mean", "a"]
    assert names(graph, [edge.value for edge in found[1].incoming]) == ["mean", "a"]
    assert names(graph, [edge.value for edge in found[2].incoming]) == ["p", "c"]
    assert [edge.stage for edge in found[2].incoming] == [0, 1]
    assert names(graph, [use.value for use in found[0].buffers]) == ["mean"]
    assert found[1].buffers == ()


def test_tensors_that_never_change_are_read_anywhere(sketch, other):
    train = leaves(sketch, buffers="still").op("x p still", "a").op("a q", "b").op("b target", "loss").graph()
    stages = cut(train, [0, 1, 3])
    graph = leaves(other, buffers="still").op("x p", "a").op("a q still r", "b").op("b target", "loss")
    found = evaluation_stages(train, stages, graph.graph(mode="evaluate"))
    assert places(found) == [(0,), (1, 2)]
    assert [use.owned for use in (*found[1].parameters, *found[1].buffers)] == [False, False, False]
    assert len(found[1].incoming) == 1


def test_the_loss_is_in_the_last_stage_even_where_nothing_of_it_lives(sketch, other):
    train = leaves(sketch).op("x p", "a").op("a", "b").op("b target", "loss").graph()
    stages = cut(train, [0, 1, 2, 3])
    graph = leaves(other).op("x p", "a").op("a target", "loss").graph(mode="evaluate")
    found = evaluation_stages(train, stages, graph)
    assert places(found) == [(0,), (), (1,)]
    assert [(edge.value, edge.stage) for edge in found[2].incoming] == [(graph.operators[0].outputs[0], 0)]
