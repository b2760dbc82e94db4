import pytest

from swarm.errors import LocalError
from swarm.graph.routing import Placement, route, sourceless


def test_sourceless_are_those_on_constants_and_each_other_only(sketch):
    sketch.leaf("input", "x").leaf("parameter", "p").leaf("buffer", "u").leaf("constant", "k")
    sketch.op("", "a").op("a k", "b").op("b x", "c").op("b p", "d").op("u", "e").op("", "f", random=True)
    graph = sketch.op("c d e f", "loss").graph()
    assert sourceless(graph) == {0, 1}


def test_a_value_that_only_a_later_stage_has_cannot_be_read(sketch):
    graph = sketch.leaf("input", "x").op("x", "a").op("a", "loss").graph()
    with pytest.raises(LocalError, match="a is read in stage 0, before any has it"):
        route(graph, Placement(stages=2, operators=[1, 0], updates={}, owners={}, homes={}))


def test_a_tensor_travels_from_the_nearest_of_its_homes(sketch):
    sketch.leaf("input", "x").leaf("buffer", "u")
    graph = sketch.op("x", "a").op("a u", "b").op("b u", "loss").graph()
    stages = route(graph, Placement(stages=4, operators=[0, 2, 3], updates={}, owners={}, homes={1: {0, 1}}))
    assert [[e.stage for e in s.outgoing if e.value == 1] for s in stages] == [[], [2], [3], []]
    assert [[use.value for use in s.buffers] for s in stages] == [[], [1], [], []]
