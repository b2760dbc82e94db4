"""What is known of the rates between peers (decision D6), as planning asks for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from swarm.ids import PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkModel:
    """Measured rates in bytes a second, by sender and receiver.

    Pairs that were not measured get ``default``. Without any rate, all pairs count as equal, and planning
    compares bytes instead of seconds.
    """

    rates: Mapping[tuple[PeerId, PeerId], float] = field(default_factory=dict)
    default: float | None = None

    def rate(self, sender: PeerId, receiver: PeerId) -> float | None:
        """Bytes a second from one peer to another, or None where nothing is known of it."""
        found = self.rates.get((sender, receiver), 0.0)
        return found if found > 0 else self.default

    def seconds_per_byte(self, peers: Sequence[PeerId]) -> NDArray[np.float64] | None:
        """Seconds for a byte from each of ``peers`` (rows) to each other, or None where nothing is known.

        A pair without a rate is taken to be as slow as the slowest known one: a guess may lower a pair's
        share of the traffic, and not raise it.
        """
        known = [rate for rate in self.rates.values() if rate > 0]
        default = self.default if self.default is not None else min(known, default=None)
        if default is None:
            return None
        seconds = np.full((len(peers), len(peers)), 1.0 / default)
        for row, sender in enumerate(peers):
            for column, receiver in enumerate(peers):
                rate = self.rates.get((sender, receiver), 0.0)
                if rate > 0:
                    seconds[row, column] = 1.0 / rate
        return seconds


UNKNOWN = NetworkModel()
"""Nothing measured yet."""
