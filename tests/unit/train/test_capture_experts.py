"""Experts of ``transformers`` are captured in batches, whatever the author chose, and left as they were."""

import copy

import pytest
import torch
from torch import nn

from swarm.graph.operators import ALLOWED
from swarm.testing.zoo import ZOO
from swarm.train.capture import capture


class Wrapping(nn.Module):
    """An author's own module around one of the library's."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return self.inner(input_ids=input_ids, labels=labels).loss


@pytest.mark.parametrize("chosen", ["eager", "grouped_mm"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_experts_become_operators_of_torch(chosen: str, wrapped: bool) -> None:
    inner = ZOO["mixtral"].make()
    inner.set_experts_implementation(chosen)
    before = inner.get_experts_implementation()
    fields = ZOO["mixtral"].sample(torch.Generator().manual_seed(0))
    captured = capture(Wrapping(inner) if wrapped else inner, fields)
    assert {operator.target for operator in captured.graph.operators} <= ALLOWED
    assert inner.get_experts_implementation() == before
    assert chosen in before.values()


def test_experts_of_all_kinds_compute_the_same() -> None:
    model = ZOO["mixtral"].make()
    fields = ZOO["mixtral"].sample(torch.Generator().manual_seed(0))
    losses = []
    for chosen in ("eager", "grouped_mm", "batched_mm"):
        one = copy.deepcopy(model)
        one.set_experts_implementation(chosen)
        losses.append(one(**fields)["loss"].item())
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)
