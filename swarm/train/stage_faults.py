"""Numbers that stop being finite: a cheap look at what leaves a stage, and the search for where it began.

An infinity is not always a fault: a mask of minus infinities is how attention is written by hand. And a NaN
that a later ``where`` drops harms nobody. So what is found here says where to look once a loss or a gradient
norm is not finite; that alone decides.
"""

import math
from collections.abc import Collection, Iterable
from typing import Final

import torch

from swarm.graph.dag import Argument, Scalar, Sequence
from swarm.train.program import Instruction

_LOW_PRECISION: Final = frozenset({torch.float16, torch.bfloat16})


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether every element is finite. One pass over memory in the usual case: the sum of all is finite."""
    if not tensor.is_floating_point():
        return True
    total = tensor.sum(dtype=torch.float32 if tensor.dtype in _LOW_PRECISION else None)
    return math.isfinite(total.item()) or bool(torch.isfinite(tensor).all().item())


def has_nan(tensor: torch.Tensor) -> bool:
    """Whether an element is NaN."""
    return tensor.is_floating_point() and bool(torch.isnan(tensor).any().item())


class FaultSearch:
    """An ``Inspect`` of :mod:`swarm.train.program` that finds the first operator that broke a number.

    That is one that made a NaN from none, or a gradient's path infinite from finite numbers without being
    given an infinity to use. ``found`` is its place, or empty where every such number came from elsewhere.
    """

    def __init__(self) -> None:
        self.found = ""

    def __call__(
        self, instruction: Instruction, read: Collection[torch.Tensor], made: Collection[torch.Tensor]
    ) -> None:
        """Look at what one operator made."""
        if self.found or all(map(is_finite, made)):
            return
        new_nan = any(map(has_nan, made)) and not any(map(has_nan, read))
        asked = _asks_for_infinity(instruction.operator.args)
        if new_nan or (instruction.trained and not asked and all(map(is_finite, read))):
            self.found = str(instruction)


def _asks_for_infinity(arguments: Iterable[Argument]) -> bool:
    for argument in arguments:
        match argument:
            case Scalar(value=float(number)) if not math.isfinite(number):
                return True
            case Sequence(items=items) if _asks_for_infinity(items):
                return True
            case _:
                continue
    return False
