"""How many requests a source may make: token buckets by address, and by the prefix that its owner may have.

Counted is what a member has sealed, since the rest costs no answer; what is too much gets none either.
"""

from collections import OrderedDict
from collections.abc import Hashable

from swarm.clock import Clock
from swarm.dht.addresses import Address
from swarm.dht.limits import ADDRESS_BURST, ADDRESS_RATE, MAX_SOURCES, PREFIX_BURST, PREFIX_RATE


class Buckets:
    """A bucket for each name used lately: ``burst`` tokens when full, ``rate`` more a second."""

    def __init__(self, clock: Clock, *, rate: float, burst: float) -> None:
        self._clock = clock
        self._rate = rate
        self._burst = burst
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, name: Hashable) -> bool:
        """Take a token of ``name``; False where there is none."""
        now = self._clock.elapsed()
        level, since = self._levels.pop(name, (self._burst, now))
        level = min(level + (now - since) * self._rate, self._burst)
        self._levels[name] = (level - 1 if level >= 1 else level, now)
        if len(self._levels) > MAX_SOURCES:
            self._levels.popitem(last=False)
        return level >= 1

    def __len__(self) -> int:
        return len(self._levels)


class Rates:
    """Whether a request from an address is one too many."""

    def __init__(self, clock: Clock) -> None:
        self._addresses = Buckets(clock, rate=ADDRESS_RATE, burst=ADDRESS_BURST)
        self._prefixes = Buckets(clock, rate=PREFIX_RATE, burst=PREFIX_BURST)

    def take(self, address: Address) -> bool:
        """Count a request from ``address``; False where it is one too many.

        One that is too many for its address does not count against those beside it.
        """
        return self._addresses.take(address) and self._prefixes.take(address.neighbourhood)
