"""What a peer has to have for each operator: a list that anybody can read off the graph."""

from swarm.graph.needs import needs

CAT, SOURCE = "aten.cat.default", "aten.arange.default"


def test_an_operator_needs_itself_and_the_types_that_it_reads_and_makes(sketch):
    sketch.leaf("input", "x").leaf("parameter", "w")
    sketch.op("x w", "y").op("y", "z", dtype="float64").op("z", "loss")
    found = needs(sketch.graph())
    assert found == [{CAT, "float32"}, {CAT, "float32", "float64"}, {CAT, "float32", "float64"}]


def test_what_is_computed_again_beside_an_operator_is_needed_there(sketch):
    sketch.leaf("input", "x").leaf("parameter", "w")
    sketch.op("", "places", trained=False, dtype="int64").op("places", "mask", trained=False, dtype="bool")
    sketch.op("x w", "y").op("y mask", "masked").op("masked", "loss")
    *_, product, masked, loss = needs(sketch.graph())
    assert product == {CAT, "float32"}
    assert masked == {CAT, SOURCE, "float32", "bool", "int64"}
    assert loss == {CAT, "float32"}
