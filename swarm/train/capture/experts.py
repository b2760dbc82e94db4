"""Mixtures of experts, as ``transformers`` has them, in the one form that a graph can hold."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from torch import nn

BATCHED: Final = "batched_mm"
"""Every token with the weights of its experts, in one product. The others take as many tokens for an expert
as chose it, a number that depends on values, or call an operator of that library."""


@contextlib.contextmanager
def batched_experts(model: nn.Module) -> Iterator[None]:
    """While the block runs, the experts of ``model`` and its parts are batched; they compute the same."""
    parts: list[Any] = [part for part in model.modules() if _can_switch(part)]
    before = [part.get_experts_implementation() for part in parts]
    try:
        for part in parts:
            part.set_experts_implementation(BATCHED)
        yield
    finally:
        for part, chosen in zip(parts, before, strict=True):
            part.set_experts_implementation(chosen)


def _can_switch(part: Any) -> bool:
    able = getattr(part, "_can_set_experts_implementation", None)
    return able is not None and bool(able())
