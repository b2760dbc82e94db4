"""How the recorder settles a step from the reports of all stages (decision D5).

The global gradient norm is the square root of the float64 sum of the parameters' sums of squares, in the
order of the parameters in the training graph: the same bits whatever the partition. The clipping factor is
that of ``torch.nn.utils.clip_grad_norm_``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from swarm.wire.messages.pipeline import StageReport

_CLIP_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class SpotCheck:
    """The loss of one micro-batch that travelled twice."""

    encoded: float
    """With the codecs of the step."""
    lossless: float
    """With every element as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """What a step came to: see :class:`swarm.wire.messages.pipeline.StepRecord`."""

    outcome: Literal["applied", "failed", "evaluated"]
    clip: float
    norm: float
    loss: float
    cause: str
    metric: float | None = None
    """Mean over the micro-batches of an evaluation whose graph has a metric."""
    spot_check: SpotCheck | None = None
    """Of an evaluation of a job with codecs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """What an evaluation pass came to."""

    step: int
    """Training steps done before it."""
    loss: float
    """Mean over its micro-batches."""
    metric: float | None = None
    """The same of the author's metric; absent without one, and where it is not finite."""


def settle(
    reports: Mapping[int, StageReport],
    *,
    clip_norm: float,
    metrics: Sequence[float] = (),
    spot_check: bool = False,
) -> Settlement:
    """Settle one pass from the reports of all its stages, by stage. ``clip_norm`` of 0 does not clip.

    ``metrics`` are those of the micro-batches, in order, where there are any. One that is not finite fails
    nothing. With a ``spot_check`` the last micro-batch is the first one once more, and counts for no mean.
    """
    losses = [loss for stage in sorted(reports) for loss in reports[stage].losses]
    checked = None
    if spot_check:
        *losses, lossless = losses
        checked = SpotCheck(encoded=losses[0], lossless=lossless)
        metrics = metrics[:-1]
    loss = sum(losses) / len(losses) if losses else 0.0
    squares = sorted(
        ((square.parameter, square.total) for report in reports.values() for square in report.squares),
    )
    norm = _root(sum(total for _, total in squares))
    cause = _cause(reports, loss=loss, norm=norm)
    evaluating = any(report.fence.phase == "evaluate" for report in reports.values())
    if cause:
        return Settlement(outcome="failed", clip=0.0, norm=norm, loss=loss, cause=cause)
    if evaluating:
        metric = sum(metrics) / len(metrics) if metrics else None
        return Settlement(
            outcome="evaluated",
            clip=1.0,
            norm=0.0,
            loss=loss,
            cause="",
            metric=metric,
            spot_check=checked,
        )
    clip = min(1.0, clip_norm / (norm + _CLIP_EPSILON)) if clip_norm > 0 else 1.0
    return Settlement(outcome="applied", clip=clip, norm=norm, loss=loss, cause="")


def _root(total: float) -> float:
    return math.sqrt(total) if total >= 0 else math.nan


def _cause(reports: Mapping[int, StageReport], *, loss: float, norm: float) -> str:
    """Why the step cannot be applied: empty where loss and norm are finite.

    A fault alone fails nothing, since a later operator may drop what is not finite. It says where to look:
    in the earliest stage that saw one forward, else in the latest that saw one backward.
    """
    if math.isfinite(loss) and math.isfinite(norm):
        return ""
    forward = [stage for stage, report in sorted(reports.items()) if report.fault and report.fault_forward]
    backward = [
        stage for stage, report in sorted(reports.items()) if report.fault and not report.fault_forward
    ]
    stages = len(reports)
    if forward:
        stage = forward[0]
        what = (
            "the loss became NaN or infinite" if not math.isfinite(loss) else "a value became NaN or infinite"
        )
        return f"{what}: first in the forward pass of stage {stage + 1} of {stages} ({reports[stage].fault})"
    if backward:
        stage = backward[-1]
        return (
            f"a gradient became NaN or infinite: first in the backward pass of stage {stage + 1} of {stages} "
            f"({reports[stage].fault})"
        )
    if not math.isfinite(loss):
        return f"the loss became NaN or infinite in stage {stages} of {stages}"
    largest = max(reports, key=lambda stage: _largest(reports[stage]))
    return f"the gradient norm became NaN or infinite: most in stage {largest + 1} of {stages}"


def _largest(report: StageReport) -> float:
    """The largest sum of squares; NaN counts as more than any number."""
    return max(
        (math.inf if math.isnan(square.total) else square.total for square in report.squares), default=0.0
    )
