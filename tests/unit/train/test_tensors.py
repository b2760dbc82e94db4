import pytest
import torch

from swarm.errors import RemoteProtocolError, TrainingError
from swarm.graph.dag import TensorSpec, Value
from swarm.train.tensors import LONGEST_SHOWN, check_against, check_made, laid_out, shown
from swarm.wire.tensors import TensorHeader

CPU = torch.device("cpu")


def value(shape: tuple[int, ...], strides: tuple[int, ...]) -> Value:
    spec = TensorSpec(dtype="float32", shape=shape, strides=strides)
    return Value(kind="output", name="h", spec=spec, differentiable=True)


def test_a_header_of_the_right_type_and_shape_may_have_any_layout():
    check_against(TensorHeader(dtype="float32", shape=(2, 3), strides=(1, 2)), value((2, 3), (3, 1)))


@pytest.mark.parametrize(
    ("header", "why"),
    [
        (TensorHeader(dtype="float64", shape=(2, 3), strides=(3, 1)), "but float64 of shape"),
        (TensorHeader(dtype="float32", shape=(3, 2), strides=(2, 1)), r"but float32 of shape \(3, 2\)"),
        (TensorHeader(dtype="float32", shape=(2, 3), strides=(900, 1)), "too thin"),
    ],
)
def test_a_header_of_anything_else_is_refused(header, why):
    with pytest.raises(RemoteProtocolError, match=why):
        check_against(header, value((2, 3), (3, 1)))


@pytest.mark.parametrize(
    ("strides", "expected"),
    [
        ((3, 1), (3, 1)),
        ((1, 2), (1, 2)),
        ((6, 2), (6, 2)),
        ((0, 1), (3, 1)),
        ((1, 1), (3, 1)),
        ((99, 1), (3, 1)),
    ],
    ids=["contiguous", "transposed", "gaps", "repeats", "overlap", "thin"],
)
def test_a_tensor_is_laid_out_as_capture_saw_it_where_that_can_be(strides, expected):
    source = torch.arange(6.0).reshape(2, 3)
    made = laid_out(source, value((2, 3), strides), CPU)
    assert made.stride() == expected
    assert torch.equal(made, source)
    assert made.data_ptr() % 64 == 0
    assert made.data_ptr() != source.data_ptr()


def test_a_tensor_of_another_shape_is_not_taken():
    with pytest.raises(
        TrainingError, match=r"h is float32 of shape \(2, 3\) in the job's graph, but float32 of"
    ):
        laid_out(torch.zeros(3, 2), value((2, 3), (3, 1)), CPU)


def test_what_an_operator_makes_must_be_what_the_graph_says():
    check_made(torch.zeros(3, 2).t(), value((2, 3), (3, 1)), "tanh")
    with pytest.raises(
        TrainingError, match=r"tanh makes float64 of shape \(2, 3\) with torch .*made float32"
    ):
        check_made(torch.zeros(2, 3, dtype=torch.float64), value((2, 3), (3, 1)), "tanh")


def test_strides_that_span_more_than_any_memory_are_never_allocated():
    source = torch.arange(6.0).reshape(2, 3)
    assert laid_out(source, value((2, 3), (2**48, 1)), CPU).stride() == (3, 1)


def test_a_graph_s_text_cannot_move_the_cursor_or_fill_the_screen():
    assert shown("blocks.1\x1b[2J\n") == "blocks.1 [2J "
    assert len(shown("a" * 10_000)) == LONGEST_SHOWN
