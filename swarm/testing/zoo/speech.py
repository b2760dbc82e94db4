"""A speech recogniser in the shape of Deep Speech 2 (arXiv 1512.02595, figure 1).

Shapes are suffixes: B batch, T time, F frequencies, C channels, V characters.
"""
# ruff: noqa: N803, N806

from typing import Final

import torch
from torch import nn
from torch.nn import functional

from swarm.testing.zoo.entry import Fields, ZooModel

FREQUENCIES: Final = 16
CHARACTERS: Final = 11
FRAMES: Final = 16
WRITTEN: Final = 4
"""Characters of a transcript, at most."""


class Recurrent(nn.Module):
    """A recurrent layer that reads both ways, of what was normalised over batch and time."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)
        self.lstm = nn.LSTM(width, hidden, batch_first=True, bidirectional=True, bias=False)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        """(B, T, C) to (B, T, hidden): the two directions added."""
        y_BTC, _ = self.lstm(self.norm(x_BTC.transpose(1, 2)).transpose(1, 2))
        forth_BTC, back_BTC = y_BTC.chunk(2, dim=-1)
        return torch.add(forth_BTC, back_BTC)


class DeepSpeech(nn.Module):
    """Convolutions over time and frequency, recurrent layers both ways, and scores of characters."""

    def __init__(self, channels: int = 4, hidden: int = 12, layers: int = 3) -> None:
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, channels, (7, 5), (2, 2), (3, 2), bias=False),
            nn.BatchNorm2d(channels),
            nn.Hardtanh(0, 20, inplace=True),
            nn.Conv2d(channels, channels, (5, 5), (2, 1), (2, 2), bias=False),
            nn.BatchNorm2d(channels),
            nn.Hardtanh(0, 20, inplace=True),
        )
        widths = [channels * FREQUENCIES // 4, *[hidden] * (layers - 1)]
        self.recurrent = nn.Sequential(*(Recurrent(width, hidden) for width in widths))
        self.norm, self.head = nn.BatchNorm1d(hidden), nn.Linear(hidden, CHARACTERS, bias=False)

    def forward(self, spectrum_BFT: torch.Tensor) -> torch.Tensor:
        """(B, F, T) to log probabilities (T / 2, B, V)."""
        x_BCFT = self.convolutions(spectrum_BFT[:, None])
        x_BTC = self.recurrent(x_BCFT.flatten(1, 2).transpose(1, 2))
        scores_BTV = self.head(self.norm(x_BTC.transpose(1, 2)).transpose(1, 2))
        return functional.log_softmax(scores_BTV, dim=-1).transpose(0, 1)


def ctc(log_probabilities_TBV: torch.Tensor, target_BU: torch.Tensor) -> torch.Tensor:
    """Connectionist temporal classification; a transcript ends where its zeros begin."""
    frames, batch, _ = log_probabilities_TBV.shape
    heard = torch.full((batch,), frames, dtype=torch.int64, device=target_BU.device)
    return functional.ctc_loss(log_probabilities_TBV, target_BU, heard, (target_BU > 0).sum(1))


def utterances(chance: torch.Generator) -> Fields:
    """Spectra, and transcripts of different lengths."""
    spectrum = torch.randn(2, FREQUENCIES, FRAMES, generator=chance)
    target = torch.randint(1, CHARACTERS, (2, WRITTEN), generator=chance)
    target[1, -1] = 0
    return {"spectrum_BFT": spectrum, "transcript": target}


MODELS: Final = {"deepspeech2": ZooModel(make=DeepSpeech, loss=ctc, sample=utterances)}
