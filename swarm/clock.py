"""The two clocks of the program: one for durations, one for dates. Nothing else reads time.

Durations come from CLOCK_BOOTTIME where the system has it, because ``time.monotonic`` stands still while a
laptop sleeps, and a lease or a heartbeat must not (decision D9).
"""

import functools
import time
from collections.abc import Callable
from typing import Final, Protocol

_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)

elapsed: Final[Callable[[], float]] = (
    functools.partial(time.clock_gettime, _BOOTTIME) if _BOOTTIME is not None else time.monotonic
)
"""Seconds since an arbitrary start, counting sleep; only differences mean anything."""


def wall() -> float:
    """Seconds since 1970-01-01 UTC, as this machine believes."""
    return time.time()


class Clock(Protocol):
    """What a service that needs time is given: the real clock, or the manual one of ``swarm.testing``."""

    def elapsed(self) -> float:
        """Seconds since an arbitrary start."""
        ...

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        ...


class SystemClock:
    """The clock of this machine."""

    elapsed: Callable[[], float] = staticmethod(elapsed)
    wall: Callable[[], float] = staticmethod(wall)
