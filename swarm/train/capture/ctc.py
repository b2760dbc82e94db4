"""Connectionist temporal classification in operators that peers run for each other.

torch's own ``ctc_loss`` reads the lengths of transcripts on the host, and reaches beyond its inputs where
they lie. The same sum over all alignments is written here with a mask for each length.

Shapes are suffixes: T frames, B batch, C classes, U characters of the longest transcript, S = 2 U + 1.
"""
# ruff: noqa: N803, N806

from typing import Any, Final

import torch
from torch.nn import functional

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
    Temporal Classification, ICML 2006, equations 5 to 8, forward variables only: autograd goes back.
    """
    if alone := log_probs.dim() == 2:
        log_probs, targets = log_probs[:, None], targets[None]
    if targets.dim() != 2:
        raise Refusal("transcripts of ctc_loss lie back to back; pad them to one length, as (batch, length)")
    heard_B, written_B = (_lengths(given, log_probs.device) for given in (input_lengths, target_lengths))
    states_BS = _states(targets.long(), blank)
    emitted_TBS = log_probs.gather(2, states_BS.expand(len(log_probs), -1, -1))
    paths_TBS = _paths(emitted_TBS, _may_skip(states_BS, blank))
    loss_B = -_ended(paths_TBS, heard_B, written_B)
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


def _states(targets_BU: torch.Tensor, blank: int) -> torch.Tensor:
    """(B, S): a blank before each character and after the last one."""
    blanks_BU = torch.full_like(targets_BU, blank)
    pairs = torch.stack([blanks_BU, targets_BU], dim=2).flatten(1)
    return torch.cat([pairs, torch.full_like(targets_BU[:, :1], blank)], dim=1)


def _may_skip(states_BS: torch.Tensor, blank: int) -> torch.Tensor:
    """(B, S): whether a state may follow the one before the one before it: a character that differs."""
    differs = (states_BS[:, 2:] != states_BS[:, :-2]) & (states_BS[:, 2:] != blank)
    return functional.pad(differs, (2, 0))


def _paths(emitted_TBS: torch.Tensor, may_skip_BS: torch.Tensor) -> torch.Tensor:
    """(T, B, S): the logarithm of the summed probabilities of all alignments of the frames so far, by the
    state that they end in.

    An alignment comes to a state from the one two before, from the one before, or from itself. That takes
    three operators a frame, and no more, since they are small and frames are many.
    """
    places_S = torch.arange(emitted_TBS.shape[2], device=emitted_TBS.device)
    before_S3 = places_S[:, None] + torch.arange(-2, 1, device=places_S.device)
    open_BS3 = (before_S3 >= 0) & torch.stack([may_skip_BS, *[torch.ones_like(may_skip_BS)] * 2], dim=2)
    barred_BS3 = torch.zeros_like(open_BS3, dtype=emitted_TBS.dtype).masked_fill(~open_BS3, IMPOSSIBLE)
    before_S3 = before_S3.clamp(min=0)
    paths = [emitted_TBS[0].masked_fill(places_S > 1, IMPOSSIBLE)]
    for emitted_BS3 in (emitted_TBS[1:, :, :, None] + barred_BS3).unbind(0):
        paths.append(torch.logsumexp(paths[-1][:, before_S3] + emitted_BS3, dim=2))
    return torch.stack(paths)


def _ended(paths_TBS: torch.Tensor, heard_B: torch.Tensor, written_B: torch.Tensor) -> torch.Tensor:
    """(B,): those of the alignments that end with the last character, or the blank after it, when all is
    heard."""
    frames, batch, states = paths_TBS.shape
    heard_BS = paths_TBS[heard_B.clamp(1, frames) - 1, torch.arange(batch, device=heard_B.device)]
    characters_S = torch.arange(1, states + 1, device=written_B.device) >> 1
    ends_BS = characters_S == written_B[:, None]
    return torch.logsumexp(heard_BS.masked_fill(~ends_BS, IMPOSSIBLE), dim=1)
