"""What a machine says it lacks is what torch does not have here, and nothing else."""

import pytest
import torch

from swarm.compress.layout import DTYPES
from swarm.graph.operators import ALLOWED
from swarm.train import abilities, program_arguments
from swarm.train.abilities import lacking

CPU = torch.device("cpu")


def test_the_torch_that_we_pin_lacks_nothing_on_a_processor() -> None:
    assert lacking(ALLOWED, CPU) == ()


def test_operators_and_overloads_that_torch_does_not_have_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if they had come with a later torch."""
    later = {"aten.no_such_thing.default", "aten.gelu.no_such_overload"}
    monkeypatch.setattr(program_arguments, "ALLOWED", ALLOWED | later)
    assert lacking(ALLOWED | later, CPU) == ("aten.gelu.no_such_overload", "aten.no_such_thing.default")


def test_an_operator_of_another_form_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "_CHANGED", {"aten.gelu.default": 2, "aten.max.dim": 2})
    assert lacking(["aten.gelu.default", "aten.max.dim", "aten.relu.default"], CPU) == ("aten.gelu.default",)


def test_types_that_a_device_cannot_hold_are_named() -> None:
    """Of the devices that torch knows by name, one that this build cannot use holds nothing."""
    assert lacking((), torch.device("fpga")) == tuple(sorted(DTYPES))
