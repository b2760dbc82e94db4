import pytest
import torch

from swarm.compress.fidelity import fidelity_of


def test_nothing_lost_is_no_error() -> None:
    for tensor in (torch.randn(5, 5), torch.zeros(3)):
        assert fidelity_of(tensor, tensor.clone()).relative_error == 0
        assert fidelity_of(tensor, tensor.clone()).cosine == 1


def test_error_and_angle_are_those_of_the_vectors() -> None:
    found = fidelity_of(torch.tensor([3.0, 4.0]), torch.tensor([3.0, 0.0]))
    assert found.relative_error == pytest.approx(4 / 5)
    assert found.cosine == pytest.approx(3 / 5)


def test_zeros_for_a_tensor_are_all_of_it_lost() -> None:
    found = fidelity_of(torch.ones(4), torch.zeros(4))
    assert (found.relative_error, found.cosine) == (1, 0)
    assert fidelity_of(torch.zeros(4), torch.ones(4)).relative_error == float("inf")
