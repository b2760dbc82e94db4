"""How steps are settled: sums in parameter order, torch's clipping, and who is named when numbers break."""

import math

import pytest
import torch

from swarm.protocol.settlement import SpotCheck, settle
from swarm.wire.messages.pipeline import Fence, Phase, Square, StageReport


def report(
    stage: int,
    *,
    squares: tuple[tuple[int, float], ...] = (),
    losses: tuple[float, ...] = (),
    fault: str = "",
    forward: bool = True,
    phase: Phase = "train",
) -> StageReport:
    fence = Fence(job="a" * 52, step=5, phase=phase, source=stage, target=2, sender=1, receiver=1)
    return StageReport(
        fence=fence,
        squares=tuple(Square(parameter, total) for parameter, total in squares),
        losses=losses,
        fault=fault,
        fault_forward=forward,
        compute_seconds=0.0,
    )


def test_the_norm_is_torchs_and_the_clip_factor_too() -> None:
    gradients = [torch.randn(7, 5, dtype=torch.float64) * 3 for _ in range(4)]
    squares = [(index, float((gradient**2).sum())) for index, gradient in enumerate(gradients)]
    found = settle(
        {0: report(0, squares=(squares[2], squares[0])), 1: report(1, squares=(squares[3], squares[1]))},
        clip_norm=1.5,
    )
    parameters = [torch.nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, 1.5)
    assert found.norm == pytest.approx(float(norm), rel=1e-12)
    assert parameters[0].grad is not None
    assert torch.allclose(parameters[0].grad, gradients[0] * found.clip, rtol=1e-12)


def test_the_sum_does_not_depend_on_who_reports_which_parameter() -> None:
    squares = [(index, 0.1 * 1.7**index) for index in range(30)]
    together = settle({0: report(0, squares=tuple(squares))}, clip_norm=1.0)
    apart = settle(
        {0: report(0, squares=tuple(squares[::2])), 1: report(1, squares=tuple(squares[1::2]))}, clip_norm=1.0
    )
    assert together == apart


def test_without_a_limit_nothing_is_clipped() -> None:
    found = settle({0: report(0, squares=((0, 1e6),), losses=(2.0, 4.0))}, clip_norm=0.0)
    assert (found.outcome, found.clip, found.norm, found.loss) == ("applied", 1.0, 1000.0, 3.0)


def test_the_earliest_stage_that_saw_it_forward_is_named() -> None:
    found = settle(
        {
            0: report(0, fault="blocks.0", forward=False),
            1: report(1, fault="blocks.1.norm"),
            2: report(2, fault="head", losses=(math.nan,)),
        },
        clip_norm=1.0,
    )
    assert found.outcome == "failed"
    assert (
        found.cause
        == "the loss became NaN or infinite: first in the forward pass of stage 2 of 3 (blocks.1.norm)"
    )


def test_the_latest_stage_that_saw_it_backward_is_named() -> None:
    found = settle(
        {
            0: report(0, fault="blocks.0", forward=False, squares=((0, math.nan),)),
            1: report(1, fault="blocks.1", forward=False, squares=((1, math.inf),)),
            2: report(2, losses=(1.0,)),
        },
        clip_norm=1.0,
    )
    assert (
        found.cause
        == "a gradient became NaN or infinite: first in the backward pass of stage 2 of 3 (blocks.1)"
    )


def test_what_a_later_operator_drops_fails_nothing() -> None:
    found = settle({0: report(0, fault="blocks.0.divide", losses=(1.0,), squares=((0, 4.0),))}, clip_norm=0.0)
    assert found.outcome == "applied"


def test_a_norm_that_overflows_fails_even_where_every_part_is_finite() -> None:
    found = settle(
        {0: report(0, squares=((0, 1e308),)), 1: report(1, squares=((1, 1.5e308),), losses=(1.0,))},
        clip_norm=1.0,
    )
    assert found.outcome == "failed"
    assert found.cause == "the gradient norm became NaN or infinite: most in stage 2 of 2"


def test_evaluation_settles_to_the_mean_of_its_losses() -> None:
    found = settle(
        {0: report(0, phase="evaluate"), 1: report(1, phase="evaluate", losses=(1.0, 2.0, 6.0))},
        clip_norm=1.0,
    )
    assert (found.outcome, found.loss) == ("evaluated", 3.0)


def test_a_spot_check_is_told_and_counts_for_no_mean() -> None:
    reports = {0: report(0, phase="evaluate"), 1: report(1, losses=(2.0, 4.0, 1.5), phase="evaluate")}
    found = settle(reports, clip_norm=0.0, metrics=(0.5, 0.75, 9.0), spot_check=True)
    assert (found.outcome, found.loss, found.metric) == ("evaluated", 3.0, 0.625)
    assert found.spot_check == SpotCheck(encoded=2.0, lossless=1.5)
    assert settle(reports, clip_norm=0.0).spot_check is None


def test_a_spot_check_that_is_not_finite_fails_nothing() -> None:
    reports = {0: report(0, losses=(2.0, math.inf), phase="evaluate")}
    found = settle(reports, clip_norm=0.0, spot_check=True)
    assert (found.outcome, found.loss) == ("evaluated", 2.0)
