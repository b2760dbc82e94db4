"""Quantisation in groups that share a scale (decision D8).

Shape suffixes: G groups, E elements of a group, N = G * E.
"""

from functools import lru_cache
from typing import Final

import torch

_CACHED: Final = 1 << 16
"""Elements that are worked on in one go on a CPU."""

_TINY: Final = 2.0**-120
"""Groups whose scale is below this are sent as zeros: its inverse would not be a number."""


def quantise(
    x_GE: torch.Tensor, *, top: int, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """Scales of type bfloat16 (G) and symbols of type int8 (G, E) in -top..top; None where x is not finite.

    Rounds to the nearest, or with a ``generator`` up or down at random so that the mean is exact (stochastic
    rounding).
    """
    scale_G = torch.empty(x_GE.shape[0], dtype=torch.bfloat16, device=x_GE.device)
    symbols_GE = torch.empty_like(x_GE, dtype=torch.int8)
    for part in _parts(x_GE):
        y_GE = x_GE[part]
        peak_G = torch.maximum(y_GE.amax(1), -y_GE.amin(1))
        scale_G[part] = peak_G / top
        wide_G = scale_G[part].float()
        inverse_G = torch.where(wide_G >= _TINY, 1 / wide_G, 0.0)
        y_GE = y_GE * inverse_G[:, None]
        if generator is None:
            y_GE.round_()
        else:
            noise_GE = torch.rand(y_GE.shape, generator=generator, device=y_GE.device)
            y_GE.add_(noise_GE).floor_().clamp_(-top, top)
        symbols_GE[part] = y_GE
    return (scale_G, symbols_GE) if bool(torch.isfinite(scale_G).all()) else None


def dequantise(scale_G: torch.Tensor, symbols_GE: torch.Tensor) -> torch.Tensor:
    """float32 (G, E) of what :func:`quantise` gave."""
    x_GE = torch.empty_like(symbols_GE, dtype=torch.float32)
    for part in _parts(symbols_GE):
        torch.mul(symbols_GE[part], scale_G[part].float()[:, None], out=x_GE[part])
    return x_GE


def _parts(x_GE: torch.Tensor) -> list[slice]:
    """Runs of groups whose elements stay in a processor's cache from one operation to the next."""
    groups, size = x_GE.shape
    step = max(1, _CACHED // size) if x_GE.device.type == "cpu" else max(1, groups)
    return [slice(at, at + step) for at in range(0, groups, step)]


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
