import pytest
import torch

from swarm.train.program_autograd import differentiably_portable, fork

BIG, ONE = 2.0**24, 1.0
"""In float32, (BIG + ONE) + ONE is BIG, and BIG + (ONE + ONE) is not."""


def test_gradients_are_added_from_the_last_use_to_the_first():
    value = torch.ones(3, requires_grad=True)
    first, rest = fork(value)
    second, third = fork(rest)
    total = torch.autograd.grad(
        [first, second, third], [value], [torch.full((3,), g) for g in (BIG, ONE, ONE)]
    )
    assert total[0].tolist() == [BIG + 2] * 3
    first, rest = fork(value)
    second, third = fork(rest)
    total = torch.autograd.grad(
        [first, second, third], [value], [torch.full((3,), g) for g in (ONE, ONE, BIG)]
    )
    assert total[0].tolist() == [BIG] * 3


@pytest.mark.parametrize("used", [0, 1])
def test_a_use_without_a_gradient_adds_nothing(used):
    value = torch.ones(3, requires_grad=True)
    (total,) = torch.autograd.grad([fork(value)[used]], [value], [torch.tensor([-0.0, 1.0, 2.0])])
    assert str(total.tolist()) == "[-0.0, 1.0, 2.0]"


def test_both_uses_share_the_value_s_memory():
    value = torch.ones(3, requires_grad=True)
    assert {use.data_ptr() for use in fork(value)} == {value.data_ptr()}


def test_values_and_gradients_become_portable():
    value = torch.arange(40.0).reshape(4, 10).requires_grad_()
    column = value[:, 3]
    made = differentiably_portable(column)
    assert torch.equal(made, column)
    assert made.stride() == (1,)
    gradient = torch.arange(40.0).reshape(4, 10)[:, 5]
    (back,) = torch.autograd.grad([made], [column], [gradient])
    assert torch.equal(back, gradient)
    assert back.stride() == (1,)
