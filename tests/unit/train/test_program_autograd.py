from collections.abc import Sequence
from itertools import permutations

import pytest
import torch

from swarm.train.program_autograd import apart, differentiably_portable, with_portable_gradient

BIG, ONE = 2.0**24, 1.0
"""In float32, (BIG + ONE) + ONE is BIG, and BIG + (ONE + ONE) is not."""


def added(order: Sequence[int], gradients: Sequence[float], handed_back: float | None = None) -> float:
    """The gradient of a value that is used once for each of ``gradients``, the roots given in ``order``.

    ``handed_back`` is the sum of still later uses, as another stage hands it back.
    """
    value = torch.ones((), requires_grad=True)
    made = value.exp()
    roots = [made * gradient for gradient in gradients]
    given = [(roots[place], torch.ones(())) for place in order]
    given += [] if handed_back is None else [(made, torch.tensor(handed_back))]
    found = torch.autograd.grad([root for root, _ in given], [made], [start for _, start in given])
    return found[0].item()


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_gradients_are_added_from_the_last_use_to_the_first(order):
    """The order of torch's engine, on which the program relies."""
    assert added(order, (BIG, ONE, ONE)) == BIG + 2
    assert added(order, (ONE, ONE, BIG)) == BIG


def test_the_sum_of_later_uses_comes_first():
    assert added((0, 1), (ONE, ONE), handed_back=BIG) == BIG
    assert added((0, 1), (BIG, ONE), handed_back=ONE) == BIG + 2


def test_a_value_apart_is_another_tensor_to_the_engine_in_the_same_memory():
    value = torch.ones(3, requires_grad=True)
    own = apart(value)
    assert own.data_ptr() == value.data_ptr()
    (gradient,) = torch.autograd.grad([own, value], [own], [torch.ones(3), torch.ones(3)], allow_unused=True)
    assert gradient.tolist() == [1.0] * 3


def test_the_gradient_of_one_use_becomes_portable():
    value = torch.ones(4, requires_grad=True)
    thin = torch.arange(40.0).reshape(4, 10)[:, 5]
    (through,) = torch.autograd.grad([with_portable_gradient(value)], [value], [thin])
    assert torch.equal(through, thin)
    assert through.stride() == (1,)
    (beside,) = torch.autograd.grad([apart(value)], [value], [thin])
    assert beside.stride() == (10,)


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
