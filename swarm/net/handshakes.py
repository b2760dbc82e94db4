"""How many incoming connections may be unfinished at a time: strangers cost bounded memory and time.

Who comes when all places are taken gets that of the one who has waited longest without a word, else that of
one who has been at it for longer than honest callers take: silence does not shut anybody out. Else the
address that has most places gives one up to an address that has fewer: talk without end from some addresses
does not shut out the others.
"""

from collections import Counter
from typing import Final, Protocol

from swarm.net.address import Address
from swarm.wire.limits import MAX_HANDSHAKES, MAX_HANDSHAKES_PER_ADDRESS

GRACE_SECONDS: Final = 3.0
"""How long one who talks keeps its place: a handshake and the hellos take three round trips."""


class Caller(Protocol):
    """An incoming connection."""

    @property
    def remote(self) -> Address:
        """Where it comes from."""
        ...

    @property
    def heard(self) -> bool:
        """Whether a byte has come from there."""
        ...

    def abort(self) -> None:
        """End it at once."""
        ...


class Handshakes:
    """Counts incoming connections from their first byte until their link is up."""

    def __init__(
        self, *, limit: int = MAX_HANDSHAKES, limit_per_address: int = MAX_HANDSHAKES_PER_ADDRESS
    ) -> None:
        self._limit = limit
        self._limit_per_address = limit_per_address
        self._open: dict[Handshake, None] = {}

    def __len__(self) -> int:
        """How many are unfinished now."""
        return len(self._open)

    def begin(self, caller: Caller, *, now: float) -> "Handshake | None":
        """One more, which counts until it is finished; None where there is no place for it."""
        origin = caller.remote.neighbourhood
        neighbours = [one for one in self._open if one.origin == origin]
        room = True
        if len(neighbours) >= self._limit_per_address and not caller.remote.is_loopback:
            room = _evict(neighbours, now)
        elif len(self) >= self._limit:
            everybody = list(self._open)
            room = _evict(everybody, now) or _evict_from_a_crowd(everybody, len(neighbours) + 1)
        if not room:
            return None
        handshake = Handshake(self, caller, origin=origin, began=now)
        self._open[handshake] = None
        return handshake

    def forget(self, handshake: "Handshake") -> None:
        """One is finished; called by :class:`Handshake`."""
        self._open.pop(handshake, None)


class Handshake:
    """One incoming connection that is not a link yet."""

    __slots__ = ("_counts", "began", "caller", "origin")

    def __init__(self, counts: Handshakes, caller: Caller, *, origin: str, began: float) -> None:
        self._counts = counts
        self.caller = caller
        self.origin = origin
        self.began = began

    def finish(self) -> None:
        """Its link is up, or it has ended; may be said twice."""
        self._counts.forget(self)

    def give_up(self) -> None:
        """Another one takes its place."""
        self.finish()
        self.caller.abort()


def _evict(rivals: list[Handshake], now: float) -> bool:
    """Take the place of one of ``rivals``, who are sorted by age; False where all may stay."""
    silent = [one for one in rivals if not one.caller.heard]
    slow = [one for one in rivals if now - one.began > GRACE_SECONDS]
    for one in (silent or slow)[:1]:
        one.give_up()
        return True
    return False


def _evict_from_a_crowd(rivals: list[Handshake], fair: int) -> bool:
    """Take a place of the address that has most, the newest, where those are more than ``fair``."""
    [(origin, places)] = Counter(one.origin for one in rivals).most_common(1)
    if places <= fair:
        return False
    [one for one in rivals if one.origin == origin][-1].give_up()
    return True
