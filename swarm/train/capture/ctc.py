"""Connectionist temporal classification in operators that peers run for each other.

torch's own ``ctc_loss`` reads the lengths of transcripts on the host, and reaches beyond its inputs where
they lie. The same sum over all alignments is written here with a mask for each length.

Shapes are suffixes: T frames, B batch, C classes, U characters of the longest transcript, S = 2 U + 1 states,
a blank around each character, K half the frames. Each utterance is heard from both ends: W = 2 B, first all
forward, then all backward.
"""
# ruff: noqa: N803, N806

from typing import Any, Final

import torch

from swarm.train.capture.places import Refusal

IMPOSSIBLE: Final = -1e30
"""In place of the logarithm of 0, whose gradient is not a number."""


def ctc_loss(  # noqa: PLR0913, PLR0917  torch has as many
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: Any = "mean",
    zero_infinity: bool = False,
) -> torch.Tensor:
    """What ``torch.nn.functional.ctc_loss`` computes, whose arguments these are.

    Raises Refusal for transcripts back to back in one dimension. Source: Graves et al., Connectionist
    Temporal Classification, ICML 2006, equations 5 to 14, the gradient apart: autograd goes back.
    """
    if alone := log_probs.dim() == 2:
        log_probs, targets = log_probs[:, None], targets[None]
    if targets.dim() != 2:
        raise Refusal("transcripts of ctc_loss lie back to back; pad them to one length, as (batch, length)")
    heard_B, written_B = (_lengths(given, log_probs.device) for given in (input_lengths, target_lengths))
    loss_B = -_alignments(log_probs, targets.long(), heard_B, written_B, blank)
    impossible_B = loss_B >= -IMPOSSIBLE / 2
    loss_B = loss_B.masked_fill(impossible_B, 0.0 if zero_infinity else float("inf"))
    match reduction:
        case "none" | 0:
            return loss_B[0] if alone else loss_B
        case "sum" | 2:
            return loss_B.sum()
        case _:
            return (loss_B / written_B.clamp(min=1)).mean()


def _lengths(given: Any, device: torch.device) -> torch.Tensor:
    """One length for each of the batch, however they were given."""
    lengths = given if isinstance(given, torch.Tensor) else torch.tensor(given, device=device)
    return lengths.reshape(-1)


def _alignments(
    log_probs_TBC: torch.Tensor,
    targets_BU: torch.Tensor,
    heard_B: torch.Tensor,
    written_B: torch.Tensor,
    blank: int,
) -> torch.Tensor:
    """(B,): the logarithm of the summed probabilities of all alignments.

    They are followed from the first frame and from the last one at once, until they meet: frames come one
    after the other, so that takes half the operators.
    """
    frames, batch, _ = log_probs_TBC.shape
    places_S = torch.arange(2 * targets_BU.shape[1] + 1, device=targets_BU.device)
    ways_W = torch.arange(2 * batch, device=targets_BU.device)
    back_BS = 2 * written_B[:, None] - places_S
    labels_WS = _labels(targets_BU, places_S, back_BS, blank)
    before_S3 = (places_S[:, None] + torch.arange(-2, 1, device=places_S.device)).clamp(min=0)
    barred_WS3 = _barred(labels_WS, places_S, log_probs_TBC.dtype)
    count_K1 = torch.arange((frames + 1) // 2, device=targets_BU.device)[:, None]
    times_KW = torch.cat([count_K1.expand(-1, batch), heard_B - 1 - count_K1], dim=1).clamp(min=0)
    emitted_KWS = log_probs_TBC[times_KW[:, :, None], ways_W[:, None] % batch, labels_WS]
    paths_KWS = _paths(emitted_KWS, barred_WS3, before_S3)
    halves_W = torch.cat([heard_B + 1, heard_B]) >> 1
    first_BS, last_BS = paths_KWS[halves_W, ways_W].chunk(2)
    last_BS = last_BS.gather(1, back_BS.clamp(min=0)).masked_fill(back_BS < 0, IMPOSSIBLE)
    met_BS3 = first_BS[:, before_S3] + barred_WS3[:batch] + last_BS[:, :, None]
    return torch.logsumexp(met_BS3, dim=(1, 2))


def _labels(
    targets_BU: torch.Tensor, places_S: torch.Tensor, back_BS: torch.Tensor, blank: int
) -> torch.Tensor:
    """(W, S): the classes of the states in their order forward, and backward from the end of a transcript.

    Where a transcript has no such state, any class.
    """
    batch, longest = targets_BU.shape
    ways_W1 = torch.arange(2 * batch, device=places_S.device)[:, None]
    places_WS = torch.cat([places_S.expand_as(back_BS), back_BS]).clamp(0, 2 * longest - 1)
    return torch.where(places_S % 2 == 1, targets_BU[ways_W1 % batch, places_WS >> 1], blank)


def _barred(labels_WS: torch.Tensor, places_S: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """(W, S, 3): the logarithm of 0 for the states two before, one before, and itself from which no alignment
    comes to a state, else 0.

    From a state to the one after the next an alignment skips a blank, between characters that differ.
    """
    repeats_WS = labels_WS == labels_WS[:, (places_S - 2).clamp(min=0)]
    skips_WS = repeats_WS | (places_S < 2)
    steps_WS, stays_WS = ((places_S < least).expand_as(labels_WS) for least in (1, 0))
    closed_WS3 = torch.stack([skips_WS, steps_WS, stays_WS], dim=2)
    return torch.zeros_like(closed_WS3, dtype=dtype).masked_fill(closed_WS3, IMPOSSIBLE)


def _paths(emitted_KWS: torch.Tensor, barred_WS3: torch.Tensor, before_S3: torch.Tensor) -> torch.Tensor:
    """(K + 1, W, S): the logarithm of the summed probabilities of all alignments of so many frames, by the
    state that they end in.

    That takes three operators a frame, and no more, since they are small and frames are many.
    """
    places_S = before_S3[:, 2]
    nothing_S = torch.zeros_like(places_S, dtype=emitted_KWS.dtype).masked_fill(places_S > 0, IMPOSSIBLE)
    paths = [nothing_S.expand_as(emitted_KWS[0]), emitted_KWS[0].masked_fill(places_S > 1, IMPOSSIBLE)]
    for emitted_WS3 in (emitted_KWS[1:, :, :, None] + barred_WS3).unbind(0):
        paths.append(torch.logsumexp(paths[-1][:, before_S3] + emitted_WS3, dim=2))
    return torch.stack(paths)
