"""Calling a peer again whose link has broken, where it was and where it says it is (decision D3).

A link that the network ended is likely to be possible again soon: the cable, the radio, the router, a
laptop that slept. Nobody has to be found for that, so it does not wait for the DHT. Both ends try, and pools
settle calls that cross on one link. Who said goodbye, or was sent away, is not called.

Where a peer says that it is, others may be: one member whose links break must not have the whole swarm call
somebody else for an hour. So hosts where it was neither called nor called from are called a few times only.
"""

import asyncio
from dataclasses import dataclass
from random import Random
from typing import Final

from swarm.clock import Clock
from swarm.errors import MisuseError, RemoteError, RemoteRefusalError, UserError
from swarm.ids import PeerId
from swarm.log import get_log
from swarm.net.address import Address
from swarm.net.link import Link
from swarm.net.pool import Pool

PAUSE_SECONDS: Final = 0.5
"""Between two attempts, at first and while no link is left. With what they take, a path that works again is
found within five seconds."""
LONGEST_PAUSE_SECONDS: Final = 30.0
PATIENCE_SECONDS: Final = 120.0
"""After so long the pauses grow with the time since the loss."""
GIVE_UP_SECONDS: Final = 3600.0
"""Then the DHT alone says where the peer is."""
ANSWER_SECONDS: Final = 2.0
"""How long an address may take to answer: TCP asks at the begin and a second later, and then too rarely."""
CALLS_AT_ONCE: Final = 64
CLAIMED_CALLS: Final = 6
"""Calls after which a host is called no more where the peer only says that it is."""
OTHERS_EVERY: Final = 3
"""Where this peer had made the call, the address that had answered is tried, but for each such time."""

_SETTLED: Final = frozenset({"duplicate", "busy"})
"""Refusals after which another attempt makes sense."""

_log = get_log(__name__)


class Redialing:
    """The peers that are being called again, each by a task in ``tasks``."""

    def __init__(
        self, pool: Pool, *, clock: Clock, tasks: asyncio.TaskGroup, random: Random | None = None
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._tasks = tasks
        self._random = random or Random()  # noqa: S311 - spreads calls, guards nothing
        self._called: set[PeerId] = set()
        self._at_once = asyncio.Semaphore(CALLS_AT_ONCE)

    @property
    def called(self) -> frozenset[PeerId]:
        """Who is being called again."""
        return frozenset(self._called)

    def lost(self, link: Link) -> None:
        """``link`` has ended: call its peer again, if that may help."""
        if link.end is None or link.end.by != "network" or link.peer in self._called:
            return
        places = _Places.of(link)
        if places.known or places.others:
            self._called.add(link.peer)
            self._tasks.create_task(self._redial(link.peer, places), name="redial")

    async def _redial(self, peer: PeerId, places: "_Places") -> None:
        began, attempts = self._clock.elapsed(), 0
        try:
            while await self._is_still_lost(peer, since=began):
                address = places.choose(attempts)
                if not address:
                    return
                attempts += 1
                async with self._at_once:
                    if await self._attempt(peer, address):
                        return
        finally:
            self._called.discard(peer)

    async def _is_still_lost(self, peer: PeerId, *, since: float) -> bool:
        """Pause; then say whether there is reason to call."""
        silence = self._clock.elapsed() - since
        pause = PAUSE_SECONDS
        if self._pool.links:
            pause = min(max(pause, pause * silence / PATIENCE_SECONDS), LONGEST_PAUSE_SECONDS)
        await asyncio.sleep(pause * self._random.uniform(0.5, 1.5))
        return peer not in self._pool.links and silence < GIVE_UP_SECONDS

    async def _attempt(self, peer: PeerId, address: str) -> bool:
        """Whether it is over, for better or worse."""
        try:
            await self._pool.dial([address], expect=peer, seconds=ANSWER_SECONDS)
        except RemoteRefusalError as error:
            _log.debug("a lost peer refuses", peer=peer, reason=str(error))
            return error.code not in _SETTLED
        except (UserError, RemoteError) as error:
            _log.debug("a lost peer does not answer", peer=peer, reason=str(error))
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class _Places:
    """Where a lost peer may be."""

    known: str
    """Where it was called; empty where it had called."""
    others: tuple[str, ...]
    """Where it says that it is."""
    own: tuple[str, ...]
    """Those of them at the host that the link was with."""

    @classmethod
    def of(cls, link: Link) -> "_Places":
        known, host = link.address if link.dialed else "", link.remote.neighbourhood
        others = tuple(address for address in link.hello.addresses if address != known)
        own = tuple(address for address in others if _host_of(address) == host)
        return cls(known=known, others=others, own=own)

    def choose(self, attempts: int) -> str:
        """The address to call after so many attempts: one at a time, since each may take ANSWER_SECONDS.

        Empty where none is left.
        """
        rounds, turn = divmod(attempts, OTHERS_EVERY if self.known else 1)
        others = self.others if rounds < CLAIMED_CALLS else self.own
        is_others_turn = not self.known or turn == OTHERS_EVERY - 1
        return others[rounds % len(others)] if others and is_others_turn else self.known


def _host_of(address: str) -> str:
    try:
        return Address.parse(address).neighbourhood
    except MisuseError:
        return ""
