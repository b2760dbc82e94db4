"""However a model takes its fields and returns its loss, capture and the eager reference call it alike."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.errors import MisuseError
from swarm.train.capture import Captured, capture, loss_and_outputs

X = torch.arange(8.0).reshape(2, 4) / 8
MASK = torch.tensor([[1.0, 0.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0]])
TARGET = torch.tensor([0, 2])
NAMED = {"x": X, "mask": MASK, "labels": TARGET}


class Optional(nn.Module):
    """Takes what models of libraries take: much, all of it optional, and the target far back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(
        self,
        x: torch.Tensor,
        cache: Any = None,
        mask: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        **_: object,
    ) -> dict[str, Any]:
        assert cache is None
        logits = self.layer(x if mask is None else x * mask)
        loss = None if labels is None else functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits, "cache": None, "states": (x, [logits.exp()])}


def shapes(captured: Captured) -> list[tuple[int, ...]]:
    return [captured.graph.values[value].spec.shape for value in captured.graph.outputs]


@pytest.mark.parametrize(
    "fields", [NAMED, {"mask": MASK, "x": X, "labels": TARGET}, (X, TARGET)], ids=["named", "mixed", "labels"]
)
def test_the_target_reaches_the_argument_that_takes_it(
    fields: Mapping[str, torch.Tensor] | Sequence[torch.Tensor],
) -> None:
    captured = capture(Optional(), fields)
    read = {index for operator in captured.graph.operators for index in _reads(operator)}
    assert set(captured.graph.inputs()) <= read
    assert shapes(captured) == [(2, 3), (2, 4), (2, 3)]


def _reads(operator: Any) -> set[int]:
    return {argument.value for argument in operator.args if hasattr(argument, "value")}


def test_a_loss_function_takes_the_last_of_named_fields() -> None:
    captured = capture(Optional(), NAMED, loss=lambda out, y: functional.cross_entropy(out["logits"], y))
    assert len(captured.graph.inputs()) == 3
    assert [operator.target for operator in captured.graph.operators] == [
        "aten.mul.Tensor", "aten.linear.default", "aten.exp.default", "aten.cross_entropy_loss.default"
    ]  # fmt: skip


@pytest.mark.parametrize("fields", [NAMED, {"x": X, "labels": TARGET}])
def test_named_fields_are_those_of_a_direct_call(fields: Mapping[str, torch.Tensor]) -> None:
    model = Optional()
    loss, outputs = loss_and_outputs(model, None, list(fields.values()), list(fields))
    expected = model(**fields)
    assert torch.equal(loss, expected["loss"])
    assert torch.equal(outputs["logits"], expected["logits"])


def test_a_field_that_forward_does_not_take_is_misuse() -> None:
    with pytest.raises(MisuseError) as caught:
        capture(nn.Linear(4, 3), {"input": X, "text": X, "target": TARGET}, loss=functional.cross_entropy)
    assert str(caught.value) == (
        "the field text is no argument of Linear.forward; rename it, or drop it from the samples"
    )


def test_outputs_may_be_nested_in_any_way() -> None:
    class Nested(nn.Linear):
        def forward(self, x: torch.Tensor) -> Any:
            y = super().forward(x)
            return {"scales": [y, (y[:, :1], {"mean": y.mean()})]}

    captured = capture(
        Nested(4, 3), (X, TARGET), loss=lambda out, y: functional.cross_entropy(out["scales"][0], y)
    )
    assert shapes(captured) == [(2, 3), (2, 1), ()]
