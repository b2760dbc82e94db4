"""Numbers that other peers send: NaN is refused everywhere, infinity nearly everywhere.

A NaN fails every comparison, so it passes for whatever a careless test asks, and JSON has none: a status
document with one cannot be written. msgspec refuses it wherever a bound is given.
"""

import math
from typing import Annotated, Final

from msgspec import Meta

LARGEST: Final = 1e300
"""Bound on settings and claims: two of them still add up to a number."""

Real = Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
"""A number."""
Positive = Annotated[float, Meta(ge=0, le=LARGEST)]
"""A number that is not negative."""
Fraction = Annotated[float, Meta(ge=0, le=1)]
"""A number from 0 to 1."""
WallTime = Annotated[float, Meta(ge=0, le=1e11)]
"""Seconds since 1970 UTC, up to the year 5138."""
Seconds = Annotated[float, Meta(ge=0, le=1e11)]
"""A duration."""
Measured = Annotated[float, Meta(ge=-LARGEST)]
"""What came out of training: infinite where it is not finite, NaN included (:func:`measured`)."""


def measured(value: float) -> float:
    """``value`` as :data:`Measured`."""
    return value if abs(value) <= LARGEST else math.inf
