"""The order of work within one stage: 1F1B (PipeDream-Flush; Narayanan et al. 2021, section 2.2).

A stage of depth ``d`` holds at most ``d`` micro-batches between their forward and their backward. It runs
``d - 1`` forwards to warm up, then one forward and one backward in turn, then the remaining backwards. The
depth of the k-th of S stages is S - k: what the last stage needs to be busy when links cost nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One piece of a pass: the forward or the backward of one micro-batch."""

    kind: Literal["forward", "backward"]
    micro_batch: int


def one_forward_one_backward(micro_batches: int, depth: int) -> Iterator[Work]:
    """The work of one stage in one pass, in order."""
    warm_up = min(depth - 1, micro_batches)
    for index in range(warm_up):
        yield Work(kind="forward", micro_batch=index)
    for index in range(micro_batches - warm_up):
        yield Work(kind="forward", micro_batch=warm_up + index)
        yield Work(kind="backward", micro_batch=index)
    for index in range(micro_batches - warm_up, micro_batches):
        yield Work(kind="backward", micro_batch=index)


def default_depth(stage: int, stages: int) -> int:
    """The depth of stage ``stage`` (from 0) of ``stages``."""
    return stages - stage
