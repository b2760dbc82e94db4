"""What the forwarder does to packets, without the packets' way in and out: losses, delays, order.

A delay drawn anew for each packet would put packets out of order, as no home link does, and TCP would take
that for losses. So the delay of a path wanders: at a constant speed to a place drawn evenly from an
interval around the mean, then to the next. Such a random waypoint walk has the density 3/4 (1 - u^2) over
its interval, with u from -1 to 1, of variance 1/5 (Bettstetter, Resta, Santi 2003, for one dimension). An
interval of sqrt(5) standard deviations either way therefore gives just the standard deviation that was
asked for. The speed is below 1 second a second, so nobody overtakes.
"""

import heapq
import random
from collections import deque
from dataclasses import dataclass
from typing import Final

from swarm.testing.netlab.schema import WANDER_REACH

WANDER_SPEED: Final = 0.5
"""Seconds of delay that come or go in a second."""
_FORGOTTEN: Final = 50.0
"""Reaches of the walk that it would go in a pause, from which on where it was says nothing on where it is."""


class Wander:
    """A delay around zero with this standard deviation, in seconds."""

    def __init__(self, deviation: float, chance: random.Random) -> None:
        self._reach = deviation * WANDER_REACH
        self._chance = chance
        self._place = self._stationary()
        self._goal = self._next_goal()
        self._now: float | None = None

    def at(self, now: float) -> float:
        """The delay at ``now``, which never goes back."""
        if not self._reach:
            return 0.0
        left = 0.0 if self._now is None else (now - self._now) * WANDER_SPEED
        self._now = now
        if left > _FORGOTTEN * self._reach:
            self._place, self._goal, left = self._stationary(), self._next_goal(), 0.0
        while left >= abs(self._goal - self._place):
            left -= abs(self._goal - self._place)
            self._place, self._goal = self._goal, self._next_goal()
        self._place += left if self._goal > self._place else -left
        return self._place

    def _stationary(self) -> float:
        return self._reach * (2 * self._chance.betavariate(2, 2) - 1)

    def _next_goal(self) -> float:
        return self._chance.uniform(-self._reach, self._reach)


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One direction of a path."""

    delay: float
    """Mean, in seconds."""
    jitter: float
    loss: float


class DelayLine:
    """Packets on their way in one direction of a path, in order."""

    __slots__ = ("_chance", "_delay", "_last", "_loss", "_wander", "lost", "packets")

    def __init__(self, way: Way, chance: random.Random) -> None:
        self.packets: deque[tuple[float, bytes]] = deque()
        """When each is due, and what it is."""
        self.lost = 0
        self._delay = way.delay
        self._loss = way.loss
        self._chance = chance.random
        self._wander = Wander(way.jitter, chance) if way.jitter else None
        self._last = 0.0

    def take(self, packet: bytes, now: float) -> bool:
        """Send ``packet`` on its way, or lose it; whether it is the only one now."""
        if self._loss and self._chance() < self._loss:
            self.lost += 1
            return False
        due = now + self._delay
        if self._wander is not None:
            # Rounding may bring two packets at one moment out of order by a trifle.
            due = self._last = max(self._last, due + self._wander.at(now))
        self.packets.append((due, packet))
        return len(self.packets) == 1


class DelayLines:
    """All lines, by the site numbers of sender and receiver; what is due next is at hand."""

    def __init__(self, ways: dict[tuple[int, int], Way], chance: random.Random) -> None:
        self._lines = {
            sender << 8 | receiver: DelayLine(way, chance) for (sender, receiver), way in ways.items()
        }
        self._next: list[tuple[float, int]] = []

    @property
    def lost(self) -> int:
        """Packets that were lost as asked for."""
        return sum(line.lost for line in self._lines.values())

    @property
    def due(self) -> float | None:
        """When the next packet is due."""
        return self._next[0][0] if self._next else None

    def take(self, packet: bytes, now: float) -> bool:
        """Keep an IPv4 packet until it is due, or lose it; False for one that no line wants.

        The sites' numbers are the second octets of its addresses (``layout``).
        """
        key = packet[13] << 8 | packet[17]
        line = self._lines.get(key)
        if line is None:
            return False
        if line.take(packet, now):
            heapq.heappush(self._next, (line.packets[0][0], key))
        return True

    def release(self, now: float) -> list[tuple[float, bytes]]:
        """The packets that are due by ``now``, each with the time at which it was."""
        found: list[tuple[float, bytes]] = []
        while self._next and self._next[0][0] <= now:
            _, key = heapq.heappop(self._next)
            packets = self._lines[key].packets
            while packets and packets[0][0] <= now:
                found.append(packets.popleft())
            if packets:
                heapq.heappush(self._next, (packets[0][0], key))
        return found
