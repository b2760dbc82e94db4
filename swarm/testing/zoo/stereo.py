"""A network that finds the disparity between two views, in the manner of FADNet (arXiv 2003.10758).

It has what makes such networks unlike others: a correlation of two feature maps over many shifts, two passes
of which the second corrects the first, warping by what was predicted, and a loss on each of several scales.

Shapes are suffixes: B batch, C channels, H height, W width, D disparities.
"""
# ruff: noqa: N803, N806

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import torch
from torch import nn
from torch.nn import functional

from swarm.testing.zoo.entry import Fields, ZooModel

SHIFTS: Final = 4
"""Disparities, in pixels of the feature maps, at which the views are compared."""

SCALES: Final = 3
WEIGHTS: Final = (0.5, 0.3, 0.2)
"""Of the loss at each scale, the finest first."""


def correlation(left_BCHW: torch.Tensor, right_BCHW: torch.Tensor) -> torch.Tensor:
    """(B, D, H, W): how alike the left view is to the right one, moved by each disparity."""
    width = left_BCHW.shape[-1]
    compared = []
    for shift in range(SHIFTS):
        moved_BCHW = functional.pad(right_BCHW, (shift, 0))[..., :width]
        compared.append((left_BCHW * moved_BCHW).mean(1))
    return torch.stack(compared, dim=1)


def warp(right_BCHW: torch.Tensor, disparity_B1HW: torch.Tensor) -> torch.Tensor:
    """The right view as the left eye would see it."""
    batch, _, height, width = right_BCHW.shape
    rows = torch.linspace(-1, 1, height, device=right_BCHW.device)[None, :, None].expand(batch, -1, width)
    columns = torch.linspace(-1, 1, width, device=right_BCHW.device)[None, None, :].expand(batch, height, -1)
    grid = torch.stack([columns - 2 * disparity_B1HW[:, 0] / width, rows], dim=-1)
    return functional.grid_sample(right_BCHW, grid, align_corners=True)


class Convolution(nn.Sequential):
    """A convolution, normalised."""

    def __init__(self, channels: int, width: int, stride: int = 1) -> None:
        convolution = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(width), nn.LeakyReLU(0.1, inplace=True))


class Decoder(nn.Module):
    """From coarse to fine: each scale is predicted from its features and the prediction before it."""

    def __init__(self, widths: Sequence[int]) -> None:
        super().__init__()
        finer = list(reversed(widths))
        self.predict = nn.ModuleList(nn.Conv2d(width, 1, 3, 1, 1) for width in finer)
        pairs = list(pairwise(finer))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(wide, narrow, 4, 2, 1) for wide, narrow in pairs)
        self.merge = nn.ModuleList(Convolution(2 * narrow + 1, narrow) for _, narrow in pairs)

    def forward(self, features: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The disparities, finest first."""
        *skips, x_BCHW = features
        found = [self.predict[0](x_BCHW)]
        for level, skip_BCHW in enumerate(reversed(skips)):
            coarse = functional.interpolate(found[0], scale_factor=2, mode="bilinear", align_corners=False)
            together = torch.cat([self.grow[level](x_BCHW), skip_BCHW, 2 * coarse], dim=1)
            x_BCHW = self.merge[level](together)
            found.insert(0, self.predict[level + 1](x_BCHW) + 2 * coarse)
        return found


class Encoder(nn.ModuleList):
    """From fine to coarse; returns the features of every scale."""

    def __init__(self, channels: int, widths: Sequence[int]) -> None:
        before = (channels, *widths)
        super().__init__(
            Convolution(wide, width, 1 if level == 0 else 2)
            for level, (wide, width) in enumerate(zip(before, widths, strict=False))
        )

    def forward(self, x_BCHW: torch.Tensor) -> list[torch.Tensor]:
        """One tensor a scale, finest first."""
        found: list[torch.Tensor] = []
        for layer in self:
            found.append(layer(found[-1] if found else x_BCHW))
        return found


class Stereo(nn.Module):
    """Disparities at several scales from a pair of views: a first guess, and a correction of it."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        widths = tuple(width + 2 * level for level in range(SCALES))
        self.features = Convolution(3, width, 2)
        self.guess, self.guesses = Encoder(width + SHIFTS, widths), Decoder(widths)
        self.correct, self.corrections = Encoder(3 * 3 + 1, widths), Decoder(widths)

    def forward(self, left_BCHW: torch.Tensor, right_BCHW: torch.Tensor) -> dict[str, list[torch.Tensor]]:
        """Under ``disparity`` and ``guess`` one (B, 1, H / 2^s, W / 2^s) a scale, finest first."""
        left, right = self.features(left_BCHW), self.features(right_BCHW)
        compared = functional.leaky_relu(correlation(left, right), 0.1)
        guesses = self.guesses(self.guess(torch.cat([left, compared], dim=1)))
        half = [functional.avg_pool2d(view, 2) for view in (left_BCHW, right_BCHW)]
        seen = warp(half[1], guesses[0])
        error = (half[0] - seen).abs()
        corrections = self.corrections(self.correct(torch.cat([half[0], seen, error, guesses[0]], dim=1)))
        final = [guess + correction for guess, correction in zip(guesses, corrections, strict=True)]
        return {"disparity": final, "guess": guesses}


def multiscale_loss(outputs: dict[str, list[torch.Tensor]], target_B1HW: torch.Tensor) -> torch.Tensor:
    """The weighted distance to the target at every scale, of both passes."""
    total = target_B1HW.new_zeros(())
    for predicted in outputs.values():
        for scale, (weight, disparity) in enumerate(zip(WEIGHTS, predicted, strict=True)):
            wanted = functional.avg_pool2d(target_B1HW, 2 ** (scale + 1)) / 2 ** (scale + 1)
            total = total + weight * functional.smooth_l1_loss(disparity, wanted)
    return total


def views(chance: torch.Generator) -> Fields:
    """Two views, and the disparity between them."""
    left, right = torch.randn(2, 2, 3, 16, 32, generator=chance)
    return {"left_BCHW": left, "right_BCHW": right, "target": 3 * torch.rand(2, 1, 16, 32, generator=chance)}


MODELS: Final = {"fadnet": ZooModel(make=Stereo, loss=multiscale_loss, sample=views)}
