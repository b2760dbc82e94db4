"""Numbers that an author sets, and what they may be."""

import math
from typing import Final, TypeGuard

from swarm.errors import MisuseError

LARGEST: Final = 1e300
"""The manifest's bound on every setting."""


def check_number(name: str, value: object, *, at_most: float = LARGEST, below: float = math.inf) -> None:
    """Raise MisuseError unless ``value`` is a number from 0 to ``at_most``, and ``below`` that."""
    if not is_number(value) or not 0.0 <= value <= at_most or value >= below:
        bound = f"below {below:g}" if below < math.inf else f"at most {at_most:g}"
        raise MisuseError(f"{name} must be a number of at least 0 and {bound}, and not {value!r}")


def is_number(value: object) -> TypeGuard[float]:
    """Whether ``value`` is a number, which a truth value is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)
