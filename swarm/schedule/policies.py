"""Which codec each boundary of a plan gets (decision D8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

from swarm.errors import LocalError
from swarm.schedule.codec_model import DENSE_BITS, topk_within
from swarm.wire.codecs import CodecSpec, Policy
from swarm.wire.coding import ValueBits

VALUE_BITS: Final[ValueBits] = 8
"""Of the entries that a chosen top-k keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryTimes:
    """What is known of a plan's boundaries, in the order of their senders.

    Times are in any one unit: where no rate is known, bytes stand for seconds.
    """

    seconds: Sequence[float]
    """Time of each boundary's tensors of a micro-batch, dense, one way."""
    floor: float = 0.0
    """What no codec makes shorter: the slowest stage's compute, or the largest latency."""


def choose_codecs(policy: Policy, boundaries: BoundaryTimes) -> tuple[CodecSpec, ...]:
    """A codec for each boundary; the same from the same arguments.

    ``adatopk`` is the rule of FusionLLM (arXiv 2410.12707, section on AdaTopK) for encoded bytes: with target
    time ``t* = max(seconds) / ratio``, at least ``floor``, a boundary within t* goes dense, and every other
    keeps the largest share whose encoded size meets t*. ``deadline`` is in ``swarm.schedule.deadline``.
    """
    match policy.kind:
        case "fixed":
            return tuple(policy.codec for _ in boundaries.seconds)
        case "uniform":
            return tuple(_shrunk(policy.ratio) for _ in boundaries.seconds)
        case "adatopk":
            target = max(max(boundaries.seconds, default=0.0) / policy.ratio, boundaries.floor)
            return tuple(_shrunk(seconds / target if target > 0 else 1.0) for seconds in boundaries.seconds)
        case "lossless" | "faithful" | "tolerant" | "any":
            raise LocalError("a deadline is chosen by resources, not by boundaries alone")
        case _:
            assert_never(policy.kind)


def _shrunk(ratio: float) -> CodecSpec:
    return topk_within(DENSE_BITS / ratio, VALUE_BITS) if ratio > 1 else CodecSpec()
