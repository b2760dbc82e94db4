"""How many incoming connections may be unfinished at a time: strangers cost bounded memory and time."""

from collections import Counter

from swarm.net.address import Address
from swarm.wire.limits import MAX_HANDSHAKES, MAX_HANDSHAKES_PER_ADDRESS


class Handshakes:
    """Counts incoming connections from their first byte until their link is up."""

    def __init__(
        self, *, limit: int = MAX_HANDSHAKES, limit_per_address: int = MAX_HANDSHAKES_PER_ADDRESS
    ) -> None:
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        """How many are unfinished now."""
        return self._open.total()

    def begin(self, remote: Address) -> "Handshake | None":
        """One more from ``remote``, which counts until it is finished; None where that is one too many."""
        origin = remote.neighbourhood
        crowded = self._open[origin] >= self._limit_per_address and not remote.is_loopback
        if len(self) >= self._limit or crowded:
            return None
        self._open[origin] += 1
        return Handshake(self, origin)

    def finish(self, origin: str) -> None:
        """One from ``origin`` is finished; called by :class:`Handshake`."""
        self._open[origin] -= 1
        if not self._open[origin]:
            del self._open[origin]


class Handshake:
    """One incoming connection that is not a link yet."""

    __slots__ = ("_counts", "_origin")

    def __init__(self, counts: Handshakes, origin: str) -> None:
        self._counts: Handshakes | None = counts
        self._origin = origin

    def finish(self) -> None:
        """Its link is up, or it has ended; may be said twice."""
        counts, self._counts = self._counts, None
        if counts is not None:
            counts.finish(self._origin)
