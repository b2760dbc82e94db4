"""Strikes: what a peer may do in vain before it is taken for one that only costs time."""

from typing import Final

MAX_STRIKES: Final = 1000
"""Useless things that a peer may do at a stretch: an honest one goes on for a round trip after a job's end,
with up to hundreds of steps a second."""
STRIKES_A_SECOND: Final = 20.0
"""How fast they are forgotten: at 1 ms each, 2 % of a processor."""


class Strikes:
    """A leaky bucket (Turner, IEEE Communications Magazine 24 (10), 1986)."""

    __slots__ = ("_level", "_since")

    def __init__(self, *, now: float) -> None:
        self._level = 0.0
        self._since = now

    def add(self, *, now: float) -> bool:
        """One more; returns whether that is too many."""
        self._level = max(self._level - (now - self._since) * STRIKES_A_SECOND, 0.0) + 1.0
        self._since = now
        return self._level > MAX_STRIKES
