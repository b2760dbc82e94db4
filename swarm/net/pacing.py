"""The user's caps on what a node sends and receives: a line of time that all its links share (decision D3).

Each bulk frame books its turn on the line, so links get turns in the order in which they asked, whatever
wakes them. Control never waits, but counts: bulk makes room for it.
"""

from dataclasses import dataclass
from typing import Final

CATCH_UP_SECONDS: Final = 0.05
"""What an idle or late line makes good at once: an event loop wakes a few milliseconds late."""
ON_THE_WIRE: Final = 1.03
"""Bytes that a byte of a link is counted as: TLS, TCP, IP and Ethernet add 2 to 5%."""
TURN_SECONDS: Final = 0.005
"""How long a turn may be, where frames can be so short: who has long ones gets no more than the others."""
QUEUE_SECONDS: Final = 0.25
"""How much of what is received may wait to be read: control waits behind it."""


class Pace:
    """A rate in bytes a second that is kept in the long run, whoever books."""

    def __init__(self, rate: float) -> None:
        self.rate: Final = rate
        self._free = 0.0

    def book(self, size: int, now: float) -> float:
        """Book the next turn for ``size`` bytes; returns when it begins, which may be past."""
        begin = max(self._free, now - CATCH_UP_SECONDS)
        self._free = begin + size * ON_THE_WIRE / self.rate
        return begin

    def settle(self, size: int) -> None:
        """``size`` bytes more were moved than booked; fewer where it is negative."""
        self._free += size * ON_THE_WIRE / self.rate

    def passed(self, size: int, now: float) -> float:
        """Book a turn for ``size`` bytes; returns when it ends."""
        self.book(size, now)
        return self._free

    @property
    def turn_bytes(self) -> int:
        """Bytes that pass in TURN_SECONDS."""
        return int(self.rate * TURN_SECONDS)

    @property
    def queue_bytes(self) -> int:
        """Bytes that pass in QUEUE_SECONDS."""
        return int(self.rate * QUEUE_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caps:
    """What a node may send and receive; None where that is not limited."""

    up: Pace | None = None
    down: Pace | None = None

    @property
    def any(self) -> bool:
        """Whether anything is limited."""
        return self.up is not None or self.down is not None

    @classmethod
    def of(cls, *, up: int, down: int) -> "Caps":
        """Caps of so many bytes a second; 0 does not limit."""
        return cls(up=Pace(up) if up else None, down=Pace(down) if down else None)
