"""A graph that breaks an invariant is refused when it is read, in one line that says which."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from swarm.errors import RemoteProtocolError
from swarm.graph.dag import (
    Graph,
    Operator,
    Ref,
    TensorSpec,
    Update,
    Value,
    check_graph,
    decode_graph,
    encode_graph,
    operator_inputs,
)
from swarm.wire.limits import MAX_OPERATORS


@pytest.fixture
def graph(sketch) -> Graph:
    sketch.leaf("input", "x").leaf("parameter", "w").leaf("buffer", "b").leaf("constant", "c")
    sketch.op("x w", "h").op("h b c", "loss")
    return sketch.graph(updates=[("b", "h")])


def refused(graph: Graph) -> str:
    with pytest.raises(RemoteProtocolError) as found:
        check_graph(graph)
    with pytest.raises(RemoteProtocolError):
        decode_graph(encode_graph(graph))
    return str(found.value)


def with_value(graph: Graph, index: int, **changes: Any) -> Graph:
    values = list(graph.values)
    values[index] = replace(values[index], **changes)
    return replace(graph, values=tuple(values))


def with_spec(graph: Graph, index: int, **changes: Any) -> Graph:
    return with_value(graph, index, spec=replace(graph.values[index].spec, **changes))


def test_a_graph_comes_back_from_its_bytes(graph):
    assert decode_graph(encode_graph(graph)) == graph
    assert list(graph.tensors()) == ["w", "b", "c"]


def test_the_page_on_the_protocol_has_the_schema():
    """Each array with its fields, in the order in which they are sent."""
    page = (Path(__file__).parents[3] / "docs" / "PROTOCOL.md").read_text("utf-8")
    section = page.split("### Graphs\n")[1].split("### Jobs\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", section, re.MULTILINE))
    told = {name: tuple(fields.replace("`", "").split(", ")) for name, fields in rows.items()}
    kinds = (Graph, Value, TensorSpec, Operator, Update)
    assert told == {kind.__name__: kind.__struct_fields__ for kind in kinds}


def test_a_graph_without_operators_is_none(graph):
    bare = replace(graph, operators=(), values=graph.values[:4], loss=0, updates=())
    assert "it has no operators" in refused(bare)


def test_a_value_that_nothing_makes_is_refused(graph):
    spare = replace(graph.values[4], name="spare")
    assert "a value that nothing makes" in refused(replace(graph, values=(*graph.values, spare)))


def test_what_is_read_before_it_is_made_is_refused(graph):
    assert "reads a value not yet made" in refused(replace(graph, operators=graph.operators[::-1]))


@pytest.mark.parametrize(
    "target",
    [
        "aten.no_such_thing.default",
        "aten.linear",
        "aten.add_.Tensor",
        "aten.relu_.default",
        "aten.as_strided.default",
        "aten.from_file.default",
        "aten._print.default",
        "aten.seed.default",
        "prims.mul.default",
        "capture_test.doubled.default",
        "os.system.default",
        "__import__('os').system('true')",
        "aten.cat.default; import os",
        "",
    ],
)
def test_the_decoder_knows_the_operators_that_peers_run(graph, target):
    strange = replace(graph.operators[0], target=target)
    said = refused(replace(graph, operators=(strange, graph.operators[1])))
    assert "is no operator that peers run for each other" in said


@pytest.mark.parametrize("read", [4, 5, 99])
def test_no_operator_reads_itself_what_comes_later_or_what_is_not_there(graph, read):
    knot = replace(graph.operators[0], args=(Ref(read),))
    assert "reads a value not yet made" in refused(replace(graph, operators=(knot, graph.operators[1])))


def test_what_is_made_twice_is_refused(graph):
    assert "makes a value twice" in refused(replace(graph, operators=(graph.operators[0], *graph.operators)))


def test_two_tensors_of_one_name_are_refused(graph):
    assert "two tensors of one name" in refused(with_value(graph, 2, name="w"))


def test_an_operator_s_output_may_be_called_like_a_tensor(graph):
    check_graph(with_value(graph, 4, name="w"))


def test_kinds_come_in_order(graph):
    assert "order of their kinds" in refused(with_value(graph, 0, kind="buffer"))


def test_strides_are_for_the_dimensions_of_the_shape(graph):
    assert "strides for other dimensions" in refused(with_spec(graph, 1, strides=(1,)))


def test_a_tensor_larger_than_any_device_is_refused(graph):
    huge = with_spec(graph, 4, shape=(2**48,) * 16, strides=(1,) * 16)
    assert "has more than" in refused(replace(huge, updates=()))


def test_integers_have_no_gradient(graph):
    assert "no gradient to want" in refused(with_value(graph, 1, spec=TensorSpec("int64", (2,), (1,))))


def test_only_buffers_are_updated_with_what_they_are(graph):
    assert "not a buffer" in refused(replace(graph, updates=(Update(1, 4),)))
    assert "not a buffer" in refused(replace(graph, updates=(Update(99, 4),)))
    assert "another kind of tensor" in refused(replace(graph, updates=(Update(2, 5),)))


def test_a_metric_is_one_number_that_an_operator_of_an_evaluation_graph_makes(graph):
    evaluation = replace(graph, mode="evaluate", updates=())
    check_graph(replace(evaluation, metric=graph.loss))
    assert "is not for evaluation" in refused(replace(graph, metric=graph.loss))
    assert "returns a value that nothing makes" in refused(replace(evaluation, metric=99))
    assert "no operator makes its metric" in refused(replace(evaluation, metric=0))
    assert "its metric is not a number" in refused(replace(evaluation, metric=4))


def test_the_loss_is_one_number(graph):
    assert "its loss is not a number" in refused(replace(graph, loss=4))
    assert "nothing makes" in refused(replace(graph, loss=99))


def test_lists_within_lists_are_no_arguments_however_deep(graph):
    data = msgspec.msgpack.decode(encode_graph(graph))
    nested: Any = ["v", 0]
    for _ in range(100):
        nested = ["l", [nested]]
    data[4 - 1][0][1] = [nested]
    with pytest.raises(RemoteProtocolError, match="not an OP-DAG"):
        decode_graph(msgspec.msgpack.encode(data))


def test_a_graph_of_too_many_operators_is_not_read(graph):
    many = replace(graph, operators=(graph.operators[0],) * (MAX_OPERATORS + 1))
    with pytest.raises(RemoteProtocolError, match="not an OP-DAG"):
        decode_graph(encode_graph(many))


def test_inputs_are_in_argument_order_with_repeats(sketch):
    sketch.leaf("input", "x").leaf("parameter", "w").op("w x w", "loss")
    (operator,) = sketch.graph().operators
    assert isinstance(operator, Operator)
    assert operator_inputs(operator) == (1, 0, 1)
