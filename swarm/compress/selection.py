"""The largest entries of a tensor, without sorting it: a threshold from a sample, then the exact count (D8).

A threshold that almost surely lets a few more than ``k`` entries pass is read off a random sample; one pass
over the tensor finds those, and among them the k-th largest is found exactly. So the result is that of a full
selection.
"""

import math
from typing import Final

import numpy as np
import torch

SAMPLE: Final = 1 << 17
"""Entries that the threshold is estimated from; tensors of fewer than twice as many are selected from
directly."""

DOUBT: Final = 4.0
"""Standard deviations by which the sample's rank is lowered, so that one pass is enough."""

CHUNK: Final = 1 << 16
"""Entries that a pass looks at in one go on a CPU: magnitudes of this many stay in its cache."""


def largest(elements: torch.Tensor, k: int, *, seed: int) -> torch.Tensor | None:
    """Positions, ascending, of the ``k`` entries of largest magnitude; of equal ones the first.

    ``elements`` has one dimension, of floating point, and ``k`` is at most its size. Which entries are
    sampled follows from ``seed``, and changes nothing in the result. None where an element is not finite.
    """
    count = elements.numel()
    if count < 2 * SAMPLE:
        return _exactly(elements, torch.arange(count, device=elements.device), k)
    generator = torch.Generator(elements.device).manual_seed(seed)
    places = torch.randint(count, (SAMPLE,), generator=generator, device=elements.device)
    sample = elements[places].abs().nan_to_num_(nan=math.inf)
    expected = SAMPLE * k / count
    rank = math.ceil(expected + DOUBT * math.sqrt(expected)) + 1
    while True:
        threshold = _kth_largest(sample, rank) if rank <= SAMPLE else sample.new_zeros(())
        found = _reaching(elements, threshold)
        if found.numel() >= k:
            return _exactly(elements, found, k)
        rank *= 2


def _reaching(elements: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """Positions of the entries with at least this magnitude, and of all that are no number."""
    if elements.device.type != "cpu":
        return (elements.abs() < threshold).logical_not_().nonzero().squeeze(1)
    everything = (
        elements.float().numpy()
    )  # numpy's passes are twice as fast as torch's, and nonzero five times
    bound, found = np.float32(float(threshold)), []
    magnitudes = np.empty(min(CHUNK, everything.size), np.float32)
    for at in range(0, everything.size, CHUNK):
        chunk = everything[at : at + CHUNK]
        below = np.less(np.abs(chunk, out=magnitudes[: chunk.size]), bound)
        found.append(np.flatnonzero(np.logical_not(below, out=below)) + at)
    return torch.from_numpy(np.concatenate(found))


def _exactly(elements: torch.Tensor, candidates: torch.Tensor, k: int) -> torch.Tensor | None:
    """The ``k`` of ``candidates`` with the largest magnitudes, in their order; None where one is not
    finite."""
    magnitudes = elements[candidates].abs()
    if not bool(torch.isfinite(magnitudes).all()):
        return None
    if k == 0:
        return candidates[:0]
    bound = _kth_largest(magnitudes, k)
    keep = magnitudes > bound
    ties = (magnitudes == bound).nonzero().squeeze(1)
    keep[ties[: k - int(keep.sum())]] = True
    return candidates[keep]


def _kth_largest(magnitudes: torch.Tensor, k: int) -> torch.Tensor:
    return magnitudes.kthvalue(magnitudes.numel() - k + 1).values
