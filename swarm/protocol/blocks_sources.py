"""What the block machine (``swarm.protocol.blocks``) knows of a source: what it was asked, how fast it is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from swarm.ids import Digest
from swarm.protocol.blocks_events import Source, SourceNumber

WINDOW: Final = 8
"""Requests that one source may have open: 8 MiB of usual blocks, more than a long fat path holds."""

HORIZON_SECONDS: Final = 2.0
"""A source gets no request that its measured rate would serve later than this, unless it has none open. So a
slow source does not sit on the last blocks while fast ones idle."""

UNMEASURED_WINDOW: Final = 2
"""Requests that a source of unknown rate may have open."""

GRACE_SECONDS: Final = 10.0
"""Part of every deadline: round trips, and a queue at the other end."""

SLOWEST_RATE: Final = 128 * 1024
"""Bytes a second below which a source counts as stuck: an eighth of the slowest link meant to take part."""

_DOUBT: Final = 4.0
"""A deadline allows for a rate this many times lower than the measured one: links are shared and jitter."""

_MEMORY: Final = 0.8
"""Weight that what was measured before keeps at each new reply."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One open request."""

    digest: Digest
    size: int
    deadline: float


@dataclass(slots=True)
class SourceState:
    """One source, its open requests by number, and its measured rate."""

    source: Source
    open: dict[int, Asked] = field(default_factory=dict)
    overdue: dict[int, Asked] = field(default_factory=dict)
    """Requests past their deadline that may still be answered; while there are any, nothing more is asked."""
    _bytes: float = 0.0
    _seconds: float = 0.0
    _counted: float = 0.0
    """The ``now`` up to which the time with open requests is in ``_seconds``."""

    @property
    def rate(self) -> float | None:
        """Bytes a second while it had requests open, or None where it has served none."""
        return self._bytes / max(self._seconds, 1e-6) if self._bytes else None

    @property
    def has_room(self) -> bool:
        """Whether it may be asked for another block now."""
        if self.overdue:
            return False
        rate = self.rate
        if rate is None or not self.open:
            return len(self.open) < UNMEASURED_WINDOW
        return len(self.open) < WINDOW and self.queued <= HORIZON_SECONDS * rate

    @property
    def queued(self) -> int:
        """Bytes that it owes us, at most."""
        return sum(asked.size for asked in self.open.values())

    def ask(self, request: int, digest: Digest, size: int, now: float) -> None:
        """Note a request, with a deadline from the rate and what is queued before it."""
        if not self.open:
            self._counted = now
        rate = max((self.rate or 0.0) / _DOUBT, SLOWEST_RATE)
        deadline = now + GRACE_SECONDS + (self.queued + size) / rate
        self.open[request] = Asked(digest=digest, size=size, deadline=deadline)

    def find(self, request: int) -> Asked | None:
        """An open request, overdue or not."""
        return self.open.get(request) or self.overdue.get(request)

    def answer(self, request: int, size: int, now: float) -> Asked | None:
        """Note the answer to a request, with ``size`` bytes; None where nothing of that number is open."""
        asked = self.open.pop(request, None)
        if asked is None:
            return self.overdue.pop(request, None)
        self._bytes = _MEMORY * self._bytes + size
        self._seconds = _MEMORY * self._seconds + max(now - self._counted, 0.0)
        self._counted = now
        return asked

    def expire(self, now: float) -> list[tuple[int, Asked]]:
        """Requests whose deadline passes now; they become overdue."""
        late = [(request, asked) for request, asked in self.open.items() if asked.deadline <= now]
        for request, asked in late:
            del self.open[request]
            self.overdue[request] = asked
        return late


def quickest(ready: Sequence[SourceState], size: int, failures: Mapping[SourceNumber, int]) -> SourceState:
    """Of sources to choose from, the one with the least failures, then the first to deliver ``size`` bytes.

    A source that has served nothing yet counts as the fastest, so that it gets measured.
    """
    fastest = max((state.rate or 0.0 for state in ready), default=0.0) or 1.0

    def preference(state: SourceState) -> tuple[int, float, int]:
        number = state.source.number
        return failures.get(number, 0), (state.queued + size) / (state.rate or fastest), number

    return min(ready, key=preference)
