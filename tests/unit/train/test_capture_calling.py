"""However a model takes its fields and returns its loss, capture and the eager reference call it alike."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.errors import CaptureError, MisuseError
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
        "samples have 2 fields beside the target, and Linear.forward takes (input: torch.Tensor): got an "
        "unexpected keyword argument 'text'"
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


class Pair(nn.Linear):
    def forward(self, x, y):  # type: ignore[no-untyped-def]
        return super().forward(x + y)


@pytest.mark.parametrize(
    ("fields", "loss", "sentence"),
    [
        (
            (X, TARGET),
            functional.cross_entropy,
            "1 field beside the target, and Pair.forward takes (x, y): missing a required argument: 'y'",
        ),
        ((X,) * 3, None, "3 fields, and Pair.forward takes (x, y): too many positional arguments"),
    ],
)
def test_samples_with_another_number_of_fields_than_forward_takes_are_misuse(
    fields: Sequence[torch.Tensor], loss: Any, sentence: str
) -> None:
    with pytest.raises(MisuseError) as caught:
        capture(Pair(4, 3), fields, loss=loss)
    assert str(caught.value) == f"samples have {sentence}"


def two_columns(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return (outputs - target[:, :2]).mean()


def branching(outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return outputs.mean() if target.sum() > 0 else outputs.sum()


class Module(nn.Module):
    def forward(self, outputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return two_columns(outputs, target)


@pytest.mark.parametrize(
    ("loss", "target", "expected"),
    [
        (
            functional.cross_entropy,
            torch.zeros(3, dtype=torch.int64),
            r"loss: computing it raised ValueError: .*; its target is int64\[3\], so check that .*",
        ),
        (
            two_columns,
            torch.zeros(2, 3),
            r"loss at test_capture_calling.py:\d+ `return \(outputs - target\[:, :2\]\).*`: computing it .*",
        ),
        (
            Module(),
            torch.zeros(2, 3),
            r"loss at test_capture_calling.py:\d+ `return \(outputs .*`: computing it raised .*",
        ),
        (
            branching,
            torch.zeros(2, 3),
            r"loss at test_capture_calling.py:\d+ `return outputs.mean\(\) if .*`: what it computes next .*",
        ),
    ],
)
def test_the_model_is_not_blamed_for_its_loss(loss: Any, target: torch.Tensor, expected: str) -> None:
    with pytest.raises(CaptureError) as caught:
        capture(nn.Linear(4, 3), (X, target), loss=loss)
    assert re.fullmatch(expected, str(caught.value))
