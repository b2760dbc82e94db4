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
    loss_B = -_alignments(emitted_TBS, _may_skip(states_BS, blank), heard_B, written_B)
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


def _alignments(
    emitted_TBS: torch.Tensor, may_skip_BS: torch.Tensor, heard_B: torch.Tensor, written_B: torch.Tensor
) -> torch.Tensor:
    """(B,): the logarithm of the summed probabilities of all alignments."""
    places_S = torch.arange(emitted_TBS.shape[2], device=emitted_TBS.device)
    paths_BS = emitted_TBS[0].masked_fill(places_S > 1, IMPOSSIBLE)
    for frame in range(1, len(emitted_TBS)):
        ways = [paths_BS, _moved(paths_BS, 1), _moved(paths_BS, 2).masked_fill(~may_skip_BS, IMPOSSIBLE)]
        further_BS = torch.logsumexp(torch.stack(ways), dim=0) + emitted_TBS[frame]
        paths_BS = torch.where(heard_B[:, None] > frame, further_BS, paths_BS)
    last_B1 = 2 * written_B[:, None]
    ends = (places_S == last_B1) | (places_S == last_B1 - 1)
    return torch.logsumexp(paths_BS.masked_fill(~ends, IMPOSSIBLE), dim=1)


def _moved(paths_BS: torch.Tensor, by: int) -> torch.Tensor:
    return functional.pad(paths_BS, (by, 0), value=IMPOSSIBLE)[:, : paths_BS.shape[1]]
