"""Joining the swarm and meeting its peers: doors first, then the DHT, then links to all it names (D1, D2).

::

    calling       call the addresses of the invite, and of members met before, until one opens
    discovering   enter the DHT with the epoch key that the door gave
    publishing    publish where this peer is, and read that back
    joined        find the others again and again, and link up with those that are new

A join ends within ``JOIN_SECONDS``, in the swarm or with a verdict that lists what each address answered.
A node that stays goes on all the same, and its status shows how.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from swarm.clock import Clock
from swarm.dht.discovery import Discovery
from swarm.errors import FailureError, RemoteError, UserError
from swarm.ids import PeerId
from swarm.log import get_log
from swarm.net.pool import Pool
from swarm.protocol.joining import Attempt
from swarm.wire.messages.hello import Role
from swarm.wire.records.peer import PeerRecord

JOIN_SECONDS: Final = 30.0
"""Within this a join ends (DESIGN section 6)."""

FIRST_LOOKS: Final = 10
"""Looks for other peers in quick succession after joining: peers that start together find each other."""

LOOK_SECONDS: Final = 1.0
REST_SECONDS: Final = 15.0
"""Between looks, at first and later."""

CALLS_AT_ONCE: Final = 16
MOST_CALLS: Final = 64
"""Peers that are called at the same time, and in one look: what the DHT says costs bounded effort."""

CALL_SECONDS: Final = 10.0
"""How long all addresses of one peer may take to answer."""

MAX_PATIENCE: Final = 5
"""A peer that cannot be reached is called at every 2nd, 4th, and in the end every 32nd look."""

UNREACHED_CALLS: Final = 2
"""A peer that did not answer so many is out of reach from here."""

_log = get_log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinState:
    """Where joining is: for whoever looks at the status meanwhile. ``since`` is wall time."""

    waiting: str
    since: float
    attempts: tuple[Attempt, ...] = ()
    """What each address answered, while nobody is linked."""


class Joining:
    """One node's way into its swarm, and its look-out for peers afterwards."""

    def __init__(self, pool: Pool, discovery: Discovery, *, role: Role, clock: Clock) -> None:
        self._pool = pool
        self._discovery = discovery
        self._role = role
        self._clock = clock
        self._soon = asyncio.Event()
        self.unreached: tuple[PeerRecord, ...] = ()
        """Peers that the DHT knew at the last look, and that did not answer two calls or more."""
        self.state = JoinState(waiting="the start", since=clock.wall())

    def _enter(self, waiting: str) -> None:
        self.state = JoinState(waiting=waiting, since=self._clock.wall())

    async def discover(self, seeds: Sequence[str], addresses: Sequence[str]) -> None:
        """Enter the DHT and publish where we are; raises FailureError where it does not keep that."""
        self._enter("an answer from the DHT")
        await self._discovery.join(seeds)
        self._enter("the DHT to keep this peer's record")
        await self._discovery.publish(addresses, self._role)
        if not await self._discovery.confirm():
            raise FailureError(
                f"the swarm's DHT answers at {', '.join(seeds)}, but does not keep what is published there: "
                "restart its bootstrap node"
            )
        self._enter("")

    def hold_up(self, reason: str) -> None:
        """This node waits for something else before it goes on; for nothing where ``reason`` is empty."""
        self._enter(reason)

    def look_soon(self) -> None:
        """Somebody left or came: look again without waiting."""
        self._soon.set()

    async def meet(self, wanted: Callable[[PeerId], bool]) -> None:
        """For ever: find peers in the DHT and link up with those that ``wanted`` says are not linked yet.

        Looks are LOOK_SECONDS apart at least, however often somebody comes and goes.
        """
        looks = 0
        failed: dict[PeerId, int] = {}
        while True:
            began = self._clock.elapsed()
            found = {record.peer: record for record in await self._discovery.find() if wanted(record.peer)}
            failed = {peer: times for peer, times in failed.items() if peer in found}
            due = sorted(
                (peer for peer in found if looks % 2 ** failed.get(peer, 0) == 0),
                key=lambda peer: failed.get(peer, 0),
            )
            at_once = asyncio.Semaphore(CALLS_AT_ONCE)
            async with asyncio.TaskGroup() as group:
                calls = {
                    peer: group.create_task(self._meet(peer, found[peer].addresses, at_once))
                    for peer in due[:MOST_CALLS]
                }
            for peer, call in calls.items():
                failed[peer] = 0 if call.result() else min(failed.get(peer, 0) + 1, MAX_PATIENCE)
            self.unreached = tuple(found[peer] for peer, times in failed.items() if times >= UNREACHED_CALLS)
            looks += 1
            self._soon.clear()
            try:
                async with asyncio.timeout(LOOK_SECONDS if looks < FIRST_LOOKS else REST_SECONDS):
                    await self._soon.wait()
            except TimeoutError:
                continue
            await asyncio.sleep(began + LOOK_SECONDS - self._clock.elapsed())

    async def _meet(self, peer: PeerId, addresses: Sequence[str], at_once: asyncio.Semaphore) -> bool:
        try:
            async with at_once, asyncio.timeout(CALL_SECONDS):
                await self._pool.dial(addresses, expect=peer)
        except (UserError, RemoteError, TimeoutError) as error:
            _log.debug("a peer that was found cannot be linked", peer=peer, reason=str(error))
            return False
        return True
