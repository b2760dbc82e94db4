"""Arriving in the swarm, whenever that is: a verdict in time; who stays goes on until it works."""

import asyncio
import ipaddress
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Final, Protocol

from swarm.dht.discovery import Discovery
from swarm.errors import FailureError, MisuseError, RemoteRefusalError, SwarmError
from swarm.identity.rights import Right
from swarm.ids import PeerId, SwarmId, short
from swarm.log import get_log
from swarm.net.address import Address
from swarm.net.link import Link
from swarm.net.pool import Pool
from swarm.services.auxiliary import run_auxiliary
from swarm.services.calling import Calling
from swarm.services.context import Context
from swarm.services.joining import Joining, JoinState
from swarm.services.redialing import Redialing
from swarm.services.revoked import Revoked
from swarm.wire.messages.hello import Role
from swarm.wire.records.peer import PeerRecord

NEIGHBOUR_SECONDS: Final = 3.0
"""How long neighbours are listened for before it is said that nobody is there."""

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 60.0
"""Between attempts to enter the DHT, while there are links."""

FULL_SECONDS: Final = 600.0
"""For how long a peer is not called that had no room, unless nobody else is linked."""

MOST_SEEDS: Final = 16
"""Addresses of linked peers, by lot, that are asked for a way into the DHT at a time: one answer will do."""

_STAYING: Final = frozenset[Role]({"peer", "bootstrap"})
"""Roles that go on trying. Who came for one thing is told at once that it does not work."""

_log = get_log(__name__)


class Neighbourhood(Protocol):
    """How peers in one local network hear of each other (``swarm.net.multicast``)."""

    async def run(self, swarm: SwarmId, port: int, found: Callable[[Sequence[str]], None]) -> None:
        """For ever: announce a peer of ``swarm`` at ``port``, and say where others are."""
        ...


class Arrival:
    """One node's way into its swarm. ``locate`` says where it is reached, given where others saw it."""

    def __init__(
        self,
        context: Context,
        pool: Pool,
        discovery: Discovery,
        *,
        revoked: Revoked,
        role: Role,
        locate: Callable[[Sequence[str]], tuple[str, ...]],
    ) -> None:
        self._context = context
        self._pool = pool
        self._discovery = discovery
        self._revoked = revoked
        self._role = role
        self._locate = locate
        self._wants: Callable[[PeerId], bool] = lambda _: True
        self._joining = Joining(pool, discovery, role=role, clock=context.clock)
        self._redialing = Redialing(pool, clock=context.clock, tasks=context.tasks)
        self._random = Random()  # noqa: S311 - spreads datagrams, guards nothing
        self._calling: Calling | None = None
        self._begun = False
        self._full: dict[PeerId, float] = {}
        """Until when peers are not called that have no room; at most one for each that was linked."""
        self.has_joined = False
        """Whether this node was in the swarm, or has begun one."""

    @property
    def state(self) -> JoinState:
        """What is waited for; nothing while this node is in the swarm and somebody is linked."""
        if self._calling is None or self._role == "bootstrap":
            return self._joining.state
        found, clock = self._calling.statistics(), self._context.clock
        if found.state == "in":
            return self._joining.state
        since = clock.wall() - max(clock.elapsed() - found.since, 0.0)
        return JoinState(waiting=found.waiting, since=since, attempts=found.attempts)

    def unreached(self) -> tuple[PeerRecord, ...]:
        """Peers that are in the swarm, were never linked with this one, and cannot be called from here.

        As long as they cannot call either, the pair waits for a relay.
        """
        links, met = self._pool.links, self._pool.has_met
        return tuple(
            record for record in self._joining.unreached if record.peer not in links and not met(record.peer)
        )

    async def join(
        self,
        remembered: Sequence[str],
        neighbourhood: Neighbourhood | None,
        wants: Callable[[PeerId], bool],
    ) -> None:
        """Join the swarm, then look out for peers that it ``wants``; ``remembered`` are addresses to try.

        Raises FailureError or RemoteRefusalError, in one line, where that is not possible. A node that stays
        raises only the latter: it says what is wrong, and goes on trying. A bootstrap node that reaches
        nobody has begun the swarm.
        """
        pool, tasks, self._wants = self._pool, self._context.tasks, wants
        pool.addresses = self._locate(())
        listens = NEIGHBOUR_SECONDS if neighbourhood is not None else 0.0
        calling = self._calling = Calling(pool, clock=self._context.clock, tasks=tasks, listens=listens)
        calling.found(pool.identity.addresses, "invite")
        calling.found(remembered, "remembered")
        tasks.create_task(calling.run(), name="call until linked")
        if neighbourhood is not None:
            port, found = pool.listening[0].port, partial(calling.found, source="neighbour")
            meet = partial(neighbourhood.run, pool.identity.swarm, port, found)
            tasks.create_task(run_auxiliary("neighbours", meet, clock=self._context.clock), name="neighbours")
        calling.on_verdict.append(self._told)
        try:
            await self._enter(await calling.arrive())
        except FailureError as verdict:
            if self._role not in _STAYING:
                raise
            await self._begin(str(verdict))
            tasks.create_task(self._arrive_late(calling), name="go on joining")

    def on_up(self) -> None:
        """A link is up, whoever called."""
        if self._calling is not None:
            self._calling.linked()

    def on_down(self, link: Link) -> None:
        """``link`` has ended: call its peer again where that may help, and look for others at once."""
        self._redialing.lost(link)
        self._joining.look_soon()
        if self._calling is not None:
            self._calling.lost()

    def referred(self, peer: PeerId, addresses: Sequence[str]) -> None:
        """``peer`` has no room for us: leave it alone for a while, and try those at ``addresses``."""
        self._full[peer] = self._context.clock.elapsed() + FULL_SECONDS
        if self._calling is not None:
            self._calling.found(addresses, "referral")

    def _told(self, verdict: SwarmError) -> None:
        """A bootstrap node may be the first, and is no worse for it. What ends the program is said by it."""
        if isinstance(verdict, RemoteRefusalError) and not self._begun:
            return
        if self._role == "bootstrap":
            _log.info("nobody else is here yet: others come by the invite that this node prints")
            _log.debug("nobody else of the swarm is reached", verdict=str(verdict))
        elif self._role in _STAYING:
            self._context.story.tell("trouble", f"not in the swarm, and trying on: {verdict}")

    async def _begin(self, verdict: str) -> None:
        """Do without the others for now; whoever comes finds this node's record here."""
        self._joining.hold_up("" if self._role == "bootstrap" else verdict)
        self._begin_discovery()
        await self._discovery.publish(self._pool.addresses, self._role)
        if self._role == "bootstrap":
            self._tell_joined()

    async def _arrive_late(self, calling: Calling) -> None:
        pause = FIRST_PAUSE_SECONDS
        while True:
            links = await calling.until_linked()
            try:
                return await self._enter(links)
            except FailureError as error:
                self._joining.hold_up(str(error))
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _enter(self, links: Sequence[Link]) -> None:
        """From links into the DHT; raises FailureError where that does not work."""
        await self._revoked.catch_up(links)
        pool = self._pool
        pool.addresses = self._locate([seen for link in links if (seen := _observed(link))])
        self._begin_discovery()
        reached = list(dict.fromkeys(address for link in links for address in _places(link)))
        seeds = self._random.sample(reached, min(len(reached), MOST_SEEDS))
        await self._joining.discover(list(dict.fromkeys([*seeds, *pool.identity.addresses])), pool.addresses)
        self._tell_joined()

    def _begin_discovery(self) -> None:
        """Once: look after the DHT, and for other peers."""
        if not self._begun:
            self._begun = True
            tasks = self._context.tasks
            tasks.create_task(self._discovery.run(), name="discovery")
            tasks.create_task(self._joining.meet(self._wanted), name="meet peers")

    def _tell_joined(self) -> None:
        if not self.has_joined:
            self.has_joined = True
            identity = self._pool.identity
            sentence = f"joined the swarm {identity.name} as peer {short(identity.peer)}"
            self._context.story.tell("joined", sentence)

    def _wanted(self, peer: PeerId) -> bool:
        full = self._full.get(peer, 0.0) > self._context.clock.elapsed()
        if full or peer == self._pool.identity.peer or peer in self._pool.links:
            return False
        return self._wants(peer)


def _places(link: Link) -> tuple[str, ...]:
    """Where the other side takes datagrams: where it was called, or where it says."""
    return (link.address,) if link.dialed else link.hello.addresses


def _observed(link: Link) -> str:
    """Where the other side saw this node, if that is a number and it has the right to let people in.

    It is published, and others call it, so it is not taken from just anybody.
    """
    observed = link.accept.observed
    if not observed or not link.member.may(Right.ADMIT):
        return ""
    try:
        ipaddress.ip_address(Address.parse(observed).host)
    except (ValueError, MisuseError):
        return ""
    return observed
