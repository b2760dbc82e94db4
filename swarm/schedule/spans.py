"""Sums over runs of operators where some parts count once a run, however many operators share them.

A tensor that several operators of one stage use is held once there, and once more in every other stage that
uses it. As a list of its uses, each use counts in a run exactly if the use before it lies outside: the
*span* from the use before to this one reaches across the run's start. All that memory is made of has this
form, so one row of sums per start prices every stage that begins there.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Sizes = NDArray[np.float64]


class SpanBuilder:
    """Collects what counts at the operators of a graph with ``count`` of them; sizes are in bytes."""

    def __init__(self, count: int) -> None:
        self._always = np.zeros(count)
        self._at: list[int] = []
        self._before: list[int] = []
        self._sizes: list[float] = []

    def always(self, at: int, size: float) -> None:
        """Count ``size`` in every run that has operator ``at``."""
        self._always[at] += size

    def across(self, at: int, before: int, size: float) -> None:
        """Count ``size`` in runs that have operator ``at`` and start after operator ``before`` (maybe -1)."""
        if before < 0:
            self.always(at, size)
        else:
            self._at.append(at)
            self._before.append(before)
            self._sizes.append(size)

    def inside(self, at: int, before: int, size: float) -> None:
        """Count ``size`` in runs that have operator ``at`` and ``before``, which is not after it."""
        self.always(at, size)
        self.across(at, before, -size)

    def finish(self) -> "Spans":
        """What was collected."""
        return Spans(
            prefix=np.concatenate([[0.0], np.cumsum(self._always)]),
            at=np.asarray(self._at, dtype=np.int64),
            before=np.asarray(self._before, dtype=np.int64),
            sizes=np.asarray(self._sizes, dtype=np.float64),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """See :class:`SpanBuilder`."""

    prefix: Sizes
    at: NDArray[np.int64]
    before: NDArray[np.int64]
    sizes: Sizes

    def row(self, first: int) -> Sizes:
        """The sums of all runs that start with operator ``first``, by the position where they end."""
        reaching = (self.before < first) & (self.at >= first)
        count = len(self.prefix)
        steps = np.bincount(self.at[reaching] + 1, weights=self.sizes[reaching], minlength=count)
        sums: Sizes = self.prefix - self.prefix[first] + np.cumsum(steps)
        return sums
