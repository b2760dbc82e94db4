from swarm.graph.cut import cut
from swarm.graph.stage import tensor_names


def test_a_holder_needs_the_tensors_that_its_stage_reads_and_replaces(sketch):
    sketch.leaf("input", "x").leaf("parameter", "p").leaf("parameter", "q").leaf("buffer", "u")
    sketch.leaf("constant", "k").op("x p", "a").op("a q k", "loss")
    graph = sketch.op("a", "new").graph(updates=[("u", "new")])
    first, second = cut(graph, [0, 1, 3])
    assert tensor_names(graph, first) == ("p",)
    assert tensor_names(graph, second) == ("q", "u", "k")
