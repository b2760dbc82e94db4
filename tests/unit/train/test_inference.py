"""A stage is judged before it has data: what its operators make against what its graph claims."""

import pytest
import torch
from msgspec.structs import replace
from torch import nn

from swarm.errors import RemoteProtocolError, TrainingError
from swarm.graph.dag import Graph, Ref, Scalar, Sequence
from swarm.train.capture import capture
from swarm.train.inference import check_operators


@pytest.fixture(scope="module")
def graph() -> Graph:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))
    return capture(model, (torch.ones(5, 4), torch.arange(5) % 3), loss=nn.functional.cross_entropy).graph


def refused(graph: Graph) -> str:
    with pytest.raises(TrainingError) as found:
        check_operators(graph, range(len(graph.operators)))
    text = str(found.value)
    assert "\n" not in text
    assert len(text) < 1000
    return text


def lying(graph: Graph, operator: int, **claims: object) -> Graph:
    output = graph.operators[operator].outputs[0]
    values = list(graph.values)
    values[output] = replace(values[output], spec=replace(values[output].spec, **claims))
    return replace(graph, values=tuple(values))


def calling(graph: Graph, operator: int, target: str, *args: object) -> Graph:
    operators = list(graph.operators)
    operators[operator] = replace(operators[operator], target=target, args=args, kwargs=())
    return replace(graph, operators=tuple(operators))


def test_what_was_captured_is_what_its_operators_make(graph):
    check_operators(graph, range(len(graph.operators)))


def test_a_claimed_type_that_is_another_is_found(graph):
    text = refused(lying(graph, 1, dtype="float16"))
    assert text.startswith("the operator relu in module '1' makes float32 of shape (5, 8) with torch ")


def test_a_claimed_shape_that_is_smaller_is_found(graph):
    text = refused(lying(graph, 0, shape=(5, 1), strides=(1, 1)))
    assert "the operator linear in module '0'" in text
    assert "makes float32 of shape (5, 8)" in text
    assert "made float32 of shape (5, 1) where the model was captured" in text


def test_a_huge_intermediate_costs_nothing_before_it_is_refused(graph):
    huge = calling(graph, 1, "aten.expand.default", Ref(0), Sequence((Scalar(2**30), Scalar(5), Scalar(4))))
    assert f"({2**30}, 5, 4)" in refused(huge)
    dense = calling(graph, 1, "aten.repeat.default", Ref(0), Sequence((Scalar(2**30), Scalar(1))))
    assert f"({5 * 2**30}, 4)" in refused(dense)


@pytest.mark.parametrize(
    ("target", "args"),
    [
        ("aten.linear.default", (Ref(0), Ref(0), Ref(0), Ref(0), Ref(0))),
        ("aten.linear.default", (Scalar("text"), Scalar(None))),
        ("aten.linear.default", ()),
        ("aten.relu.default", (Scalar(2**63),)),
        ("aten.expand.default", (Ref(0), Sequence((Scalar(2**64 - 1),)))),
        ("aten.full.default", (Sequence((Scalar(2**63 - 1), Scalar(2**63 - 1))), Scalar(0))),
        ("aten.select.int", (Ref(0), Scalar(0), Scalar(2**62))),
        ("aten.view.default", (Ref(0), Sequence((Scalar(-2), Scalar(-3))))),
        ("aten.einsum.default", (Scalar("???"), Sequence((Ref(0),)))),
    ],
    ids=["too many", "types", "none", "64 bits", "unsigned", "overflow", "index", "negative", "formula"],
)
def test_whatever_torch_raises_is_one_line_that_names_the_operator(graph, target, args):
    assert refused(calling(graph, 1, target, *args)).startswith(
        f"the operator {target.split('.')[1]} in module '1' failed: "
    )


def test_an_operator_that_is_not_allowed_is_charged_to_who_sent_it(graph):
    with pytest.raises(RemoteProtocolError, match="not on the allow-list"):
        check_operators(calling(graph, 1, "aten.as_strided.default", Ref(0)), [1])


def test_calls_that_differ_in_the_type_of_a_number_are_judged_apart(graph):
    shape = Sequence((Scalar(5), Scalar(8)))
    whole = calling(graph, 1, "aten.full.default", shape, Scalar(1))
    operators = (replace(whole.operators[1], args=(shape, Scalar(1.0)), outputs=(-1,)), *whole.operators[1:])
    with pytest.raises(TrainingError, match=r"full in module '1' makes int64 of shape \(5, 8\)"):
        check_operators(replace(whole, operators=operators), [0, 1])


def test_a_result_that_nobody_uses_takes_no_more_memory_than_the_rest(graph):
    huge = calling(graph, 1, "aten.repeat.default", Ref(0), Sequence((Scalar(2**20), Scalar(1))))
    unused = replace(huge.operators[1], outputs=(-1,))
    assert "bytes inside" in refused(replace(huge, operators=(huge.operators[0], unused)))


def test_only_the_operators_asked_for_are_looked_at(graph):
    check_operators(calling(graph, 1, "aten.as_strided.default", Ref(0)), [0])
