from collections.abc import Callable

import pytest
import torch
from torch import nn

from swarm.graph.cut import cut
from swarm.ids import ValueId
from swarm.train.capture import capture
from swarm.train.stage import StageExecutor, StageTask
from swarm.train.stage_faults import has_nan, is_finite
from swarm.train.stage_parameters import sum_of_squares
from swarm.wire.records.manifest import Optimizer, Schedule

CPU = torch.device("cpu")
NAN, INFINITY = float("nan"), float("inf")
PLAIN = Optimizer(kind="sgd", lr=0.1, schedule=Schedule(kind="constant", warmup=0, floor=1.0))


@pytest.mark.parametrize(
    ("tensor", "finite", "nan"),
    [
        (torch.ones(3), True, False),
        (torch.full((4,), 3e38), True, False),
        (torch.full((4,), 6e4, dtype=torch.float16), True, False),
        (torch.tensor([1.0, INFINITY]), False, False),
        (torch.tensor([-INFINITY, INFINITY]), False, False),
        (torch.tensor([1.0, NAN]), False, True),
        (torch.tensor([1, 2]), True, False),
        (torch.zeros(0), True, False),
    ],
    ids=["ones", "sum overflows", "half", "infinity", "both infinities", "nan", "integers", "empty"],
)
def test_what_is_finite(tensor, finite, nan):
    assert (is_finite(tensor), has_nan(tensor)) == (finite, nan)


class Model(nn.Module):
    """A layer, something that may break, and another layer."""

    def __init__(self, middle: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.before = nn.Linear(3, 3)
        self.after = nn.Linear(3, 3)
        self.middle = middle

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(self.middle(self.before(x)))


def faults(middle: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, *, bound: int) -> list[str]:
    """The faults of two stages' forwards, and then of their backwards from the last."""
    torch.manual_seed(0)
    target = torch.zeros(x.shape)
    captured = capture(Model(middle), (torch.ones(x.shape), target), loss=nn.functional.mse_loss)
    stages = cut(captured.graph, [0, bound, len(captured.graph.operators)])
    executors = [
        StageExecutor(
            StageTask(
                graph=captured.graph,
                stage=stage,
                evaluation=None,
                optimizer=PLAIN,
                micro_batches=1,
                seed=0,
            ),
            captured.tensors,
            CPU,
        )
        for stage in stages
    ]
    first = executors[0].forward(0, 0, {ValueId(0): x}, {})
    second = executors[1].forward(0, 0, {ValueId(1): target}, first.outgoing)
    later = executors[1].backward(0, 0, {})
    earlier = executors[0].backward(0, 0, later.outgoing)
    return [first.fault, second.fault, later.fault, earlier.fault]


def test_finite_numbers_are_no_fault():
    assert faults(torch.tanh, torch.ones(2, 3), bound=2) == ["", "", "", ""]


def test_the_operator_that_makes_the_first_nan_is_named_in_its_stage_only():
    first, second, *_ = faults(lambda h: torch.sqrt(-1.0 - h * h), torch.ones(2, 3), bound=5)
    assert "the operator sqrt in the model itself at test_stage_faults.py:" in first
    assert second == ""


def test_an_overflow_is_named_where_it_happens():
    first, second, *_ = faults(lambda h: (h * h + 1) * 3e38 * 3e38, torch.ones(2, 3), bound=2)
    assert first == ""
    assert "the operator mul in the model itself at test_stage_faults.py:" in second


def test_infinities_that_the_model_asks_for_are_no_fault():
    def masked(h: torch.Tensor) -> torch.Tensor:
        return torch.softmax(h.masked_fill(torch.ones(3, 3).triu(1) > 0, -INFINITY), -1)

    for bound in range(2, 6):
        assert faults(masked, torch.ones(3, 3), bound=bound) == ["", "", "", ""]


def test_samples_that_are_not_finite_are_nobody_s_fault():
    assert faults(torch.tanh, torch.full((2, 3), NAN), bound=2)[:2] == ["", ""]


def test_a_gradient_that_is_not_finite_is_named_by_the_operator_that_it_passed():
    first, second, later, _ = faults(lambda h: torch.sqrt(h * 0.0), torch.ones(2, 3), bound=2)
    assert (first, second) == ("", "")
    assert "the operator sqrt" in later


def test_a_parameter_s_gradient_that_is_not_finite_is_named():
    torch.manual_seed(0)
    captured = capture(
        Model(lambda h: torch.sqrt(h * 0.0)),
        (torch.ones(2, 3), torch.zeros(2, 3)),
        loss=nn.functional.mse_loss,
    )
    (stage,) = cut(captured.graph, [0, len(captured.graph.operators)])
    task = StageTask(
        graph=captured.graph, stage=stage, evaluation=None, optimizer=PLAIN, micro_batches=1, seed=0
    )
    executor = StageExecutor(task, captured.tensors, CPU)
    executor.forward(0, 0, {ValueId(0): torch.ones(2, 3), ValueId(1): torch.zeros(2, 3)}, {})
    executor.backward(0, 0, {})
    assert executor.measure({}).fault == "the gradient of before.weight"


@pytest.mark.parametrize("size", [0, 5, 2**20, 2**20 + 3])
def test_the_sum_of_squares_is_in_double_precision(size):
    tensor = torch.arange(size, dtype=torch.float32)
    assert sum_of_squares(tensor).item() == pytest.approx(float(sum(i * i for i in range(size))), rel=1e-12)


def test_the_sum_of_squares_does_not_overflow():
    assert sum_of_squares(torch.full((2, 2), 1e30).t()).item() == pytest.approx(4e60)
