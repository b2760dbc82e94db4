"""Quantisation in groups that share a scale (decision D8).

Shape suffixes: G groups, E elements of a group, N = G * E.
"""

from functools import lru_cache
from typing import Final

import torch

_TINY: Final = 2.0**-120
"""Groups whose scale is below this are sent as zeros: its inverse would not be a number."""


def quantise(
    x_GE: torch.Tensor, *, top: int, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Scales of type bfloat16 (G) and symbols of type int8 (G, E) in -top..top; None where x is not finite.

    Rounds to the nearest, or with a ``generator`` up or down at random so that the mean is exact (stochastic
    rounding).
    """
    peak_G = torch.maximum(x_GE.amax(1), -x_GE.amin(1))
    scale_G = (peak_G / top).to(torch.bfloat16)
    if not bool(torch.isfinite(scale_G).all()):
        return None
    wide_G = scale_G.float()
    inverse_G = torch.where(wide_G >= _TINY, 1 / wide_G, 0.0)
    y_GE = x_GE * inverse_G[:, None]
    if generator is None:
        return scale_G, y_GE.round_().to(torch.int8)
    noise_GE = torch.rand(y_GE.shape, generator=generator, device=y_GE.device)
    return scale_G, y_GE.add_(noise_GE).floor_().clamp_(-top, top).to(torch.int8)


def dequantise(scale_G: torch.Tensor, symbols_GE: torch.Tensor) -> torch.Tensor:
    """float32 (G, E) of what :func:`quantise` gave."""
    return symbols_GE.float().mul_(scale_G.float()[:, None])


def grouped(x_N: torch.Tensor, size: int) -> torch.Tensor:
    """``x_N`` in float32 as rows of ``size``, the last one filled up with zeros."""
    wide = x_N.float()
    missing = -wide.numel() % size
    return (torch.nn.functional.pad(wide, (0, missing)) if missing else wide).view(-1, size)


@lru_cache(maxsize=8)
def hadamard(size: int, device: torch.device) -> torch.Tensor:
    """The orthonormal Hadamard matrix of ``size``, a power of two (Sylvester's construction); its own
    inverse."""
    matrix = torch.ones(1, 1, device=device)
    while matrix.shape[0] < size:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix.mul_(size**-0.5)
