"""CTC in operators that travel is torch's own, for transcripts of any length, and in its gradient."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.errors import CaptureError
from swarm.graph.operators import ALLOWED
from swarm.train.capture import capture
from swarm.train.capture.ctc import ctc_loss

HEARD = torch.tensor([9, 8, 5, 3])
WRITTEN = torch.tensor([4, 3, 0, 4])
"""The last one cannot be: four characters, two of them alike, in three frames."""


def spoken() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    scores = torch.randn(9, 4, 6, dtype=torch.float64, requires_grad=True)
    return scores, torch.tensor([[1, 2, 3, 4], [5, 5, 1, 0], [0, 0, 0, 0], [2, 2, 4, 1]])


@pytest.mark.parametrize("zero_infinity", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_loss_and_gradient_are_torchs(reduction: str, zero_infinity: bool) -> None:
    scores, target = spoken()
    ours, theirs = (
        function(
            scores.log_softmax(-1), target, HEARD, WRITTEN, reduction=reduction, zero_infinity=zero_infinity
        )
        for function in (ctc_loss, functional.ctc_loss)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    if zero_infinity:
        gradients = [torch.autograd.grad(loss.sum(), scores)[0] for loss in (ours, theirs)]
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-13)


@pytest.mark.parametrize("frames", [1, 2, 5, 8])
def test_alignments_meet_in_the_middle_of_as_many_frames_as_were_heard(frames: int) -> None:
    torch.manual_seed(frames)
    scores = torch.randn(frames, frames, 4, dtype=torch.float64, requires_grad=True)
    heard = torch.arange(1, frames + 1)
    target, written = torch.randint(0, 3, (frames, 3)), heard.clamp(max=3)
    losses = [
        function(scores.log_softmax(-1), target, heard, written, 3, "sum", zero_infinity=True)
        for function in (ctc_loss, functional.ctc_loss)
    ]
    torch.testing.assert_close(*losses, rtol=1e-12, atol=0)
    gradients = [torch.autograd.grad(loss, scores)[0] for loss in losses]
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-13)


@pytest.mark.parametrize("lengths", [(9, 4), ([9], [4]), (torch.tensor([9]), torch.tensor([4]))])
def test_one_transcript_may_come_without_a_batch(lengths: tuple[Any, Any]) -> None:
    scores, target = spoken()
    alone = scores[:, 0].log_softmax(-1)
    ours = ctc_loss(alone, target[0], *lengths, reduction="none")
    expected = functional.ctc_loss(alone, target[0], torch.tensor(9), torch.tensor(4), reduction="none")
    torch.testing.assert_close(ours, expected)


class Speech(nn.Module):
    """Scores for each frame; ``torch.nn.CTCLoss`` as its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.loss = nn.Linear(3, 6), nn.CTCLoss(blank=5)

    def forward(self, x: torch.Tensor, target: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
        scores = self.layer(x).log_softmax(-1).transpose(0, 1)
        return self.loss(scores, target, torch.full((2,), 7), written)


def test_a_model_with_ctc_loss_is_captured_with_lengths_as_inputs() -> None:
    fields = (torch.randn(2, 7, 3), torch.tensor([[0, 1, 1], [4, 2, 0]]), torch.tensor([3, 2]))
    captured = capture(Speech(), fields)
    assert {operator.target for operator in captured.graph.operators} <= ALLOWED
    assert len(captured.graph.inputs()) == 3


def test_one_frame_after_the_other_takes_three_operators_for_two_frames() -> None:
    def operators(frames: int) -> int:
        fields = (torch.randn(2, frames, 3), torch.tensor([[0, 1, 1], [4, 2, 0]]), torch.tensor([3, 2]))
        return len(capture(Speech(), fields).graph.operators)

    assert operators(27) - operators(7) == 3 * 20 // 2


def test_transcripts_back_to_back_are_refused_with_a_way_out() -> None:
    with pytest.raises(CaptureError) as caught:
        capture(Speech(), (torch.randn(2, 7, 3), torch.tensor([0, 1, 1, 4, 2]), torch.tensor([3, 2])))
    assert str(caught.value).endswith(
        "transcripts of ctc_loss lie back to back; pad them to one length, as (batch, length)"
    )
    assert "`return self.loss(scores, target, torch.full((2,), 7), written)`" in str(caught.value)
