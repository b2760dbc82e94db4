"""How punctual the machine is while something is measured on it, and what may be asked of a measurement then.

netlab's rates and delays are timers of the kernel and of programs. Where a machine wakes sleepers late,
because others compute or its own host has no time for it, they are as late as that.
"""

import dataclasses
import threading

from swarm.clock import elapsed

NAP = 0.001
PUNCTUAL = 0.0005
"""Seconds by which naps may be longer, but for a hundredth of the time, on a punctual machine."""

OVERWHELMED = 0.01
"""Such a nap is longer than even fast links may catch up: they are idle, however much there is to carry."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Where a measurement should be."""

    least: float
    most: float
    late: float
    """Seconds by which naps of a hundredth of the time were longer, or more; for who reads of a failure."""

    def __contains__(self, found: float) -> bool:
        return self.least <= found <= self.most


class Machine(threading.Thread):
    """Naps beside a measurement.

    What a network must never do is asked always: to carry more than its rate, or to deliver before its
    delay. How near to both it comes is asked where the machine was punctual; elsewhere half of a rate, or
    twenty milliseconds, will do, and where it was overwhelmed a tenth, and twice its lateness.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._late: list[float] = []
        self._over = threading.Event()

    def run(self) -> None:
        """Naps until it is closed."""
        before = elapsed()
        while not self._over.wait(NAP):
            now = elapsed()
            self._late.append(now - before - NAP)
            before = now

    def close(self) -> None:
        """Ends the thread."""
        self._over.set()
        self.join()

    def forget(self) -> None:
        """Begins anew, with another measurement."""
        self._late = []

    def rate(self, wanted: float, *, rel: float = 0.1) -> Bounds:
        """Where a rate of ``wanted`` may be measured, in its unit."""
        late = self._lateness()
        least = 1 - rel if late <= PUNCTUAL else 0.5 if late <= OVERWHELMED else 0.1
        return Bounds(least=least * wanted, most=(1 + rel) * wanted, late=late)

    def delay(self, wanted: float, *, tolerance: float) -> Bounds:
        """Where a delay of ``wanted`` seconds may be measured."""
        late = self._lateness()
        most = tolerance if late <= PUNCTUAL else tolerance + max(0.02, 2 * late)
        return Bounds(least=wanted - tolerance, most=wanted + most, late=late)

    def _lateness(self) -> float:
        """By time, not by naps: a machine that stood still for a while was not punctual then."""
        late = sorted(self._late, reverse=True)
        left = (sum(late) + NAP * len(late)) / 100
        for nap in late:
            left -= NAP + nap
            if left <= 0:
                return nap
        return float("inf")
