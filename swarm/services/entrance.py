"""How a node gets into its swarm: its ports, its addresses, the epoch key, joining (decisions D1, D2)."""

import asyncio
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from swarm.clock import Clock
from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.dht.endpoint import Network as DatagramNetwork
from swarm.errors import FailureError, LocalError, MisuseError
from swarm.identity.rights import Right
from swarm.ids import PeerId
from swarm.net.address import Address
from swarm.net.interfaces import reachable_hosts
from swarm.net.link import Link
from swarm.net.pool import Pool
from swarm.protocol.welcome import Epoch
from swarm.services.joining import Joining, JoinState
from swarm.services.redialing import Redialing
from swarm.services.revoked import Revoked
from swarm.wire.limits import MAX_ADDRESSES
from swarm.wire.messages.hello import Role

_PORT_ATTEMPTS: Final = 8
"""How often a free port is looked for that both TCP and UDP have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntranceConfig:
    """Where a node listens, and what it says of that."""

    role: Role
    listen: Address
    advertise: tuple[str, ...]
    """``host:port`` to tell others; empty: what it finds out itself."""
    contacts: Path
    """File that remembers DHT contacts."""


class Entrance:
    """Opens the ports, joins, and then looks out for other peers."""

    def __init__(self, pool: Pool, config: EntranceConfig, *, clock: Clock, network: DatagramNetwork) -> None:
        self._pool = pool
        self._config = config
        self._clock = clock
        self._network = network
        self._discovery: Discovery | None = None
        self._joining: Joining | None = None
        self._redialing: Redialing | None = None
        self._started = clock.wall()
        """Addresses of the invite, and of members met in earlier runs."""

    @property
    def discovery(self) -> Discovery:
        """The node's use of the DHT; raises LocalError before :meth:`open`."""
        if self._discovery is None:
            raise LocalError("the node has not been entered")
        return self._discovery

    @property
    def state(self) -> JoinState:
        """What joining waits for."""
        return self._joining.state if self._joining else JoinState(waiting="the start", since=self._started)

    async def open(self) -> None:
        """Listen on one port for TCP and UDP; where any free one will do, one that both have free.

        Raises FailureError where the port is taken.
        """
        for attempt in range(_PORT_ATTEMPTS):
            await self._pool.__aenter__()
            try:
                self._discovery = await self._open_discovery(self._pool.listening[0].port)
            except FailureError:
                await self._pool.__aexit__(None, None, None)
                if self._config.listen.port or attempt == _PORT_ATTEMPTS - 1:
                    raise
            else:
                return

    async def _open_discovery(self, port: int) -> Discovery:
        host, identity = self._config.listen.host, self._pool.identity
        discovery = Discovery(
            DiscoveryConfig(
                swarm=identity.swarm,
                listen=(host,) if host else ("0.0.0.0", "::"),  # noqa: S104 - a peer is there to be reached
                port=port,
                storing=self._config.role != "author",
                state=self._config.contacts,
            ),
            key=identity.key,
            clock=self._clock,
            network=self._network,
            known=self._pool.has_met,
        )
        await discovery.start()
        epoch = self._pool.reception.epoch
        discovery.set_epoch(epoch.number, epoch.key)
        return discovery

    async def aclose(self) -> None:
        """Close what :meth:`open` opened beside the pool."""
        if self._discovery is not None:
            await self._discovery.aclose()

    async def join(self, remembered: Sequence[str], *, revoked: Revoked, tasks: asyncio.TaskGroup) -> None:
        """Join the swarm, then look out for other peers in ``tasks``; ``remembered`` are addresses to try.

        Discovery begins once ``revoked`` has caught up with those who opened.

        Raises FailureError or RemoteRefusalError, in one line, where that is not possible. A bootstrap node
        that reaches nobody begins alone.
        """
        pool, discovery, role = self._pool, self.discovery, self._config.role
        joining = self._joining = Joining(pool, discovery, role=role, clock=self._clock)
        self._redialing = Redialing(pool, clock=self._clock, tasks=tasks)
        pool.addresses = self._addresses(())
        links = await self._knock(joining, remembered)
        await revoked.catch_up(links)
        pool.addresses = self._addresses([seen for link in links if (seen := _observed(link))])
        tasks.create_task(discovery.run(), name="discovery")
        if links:
            await joining.discover([link.address for link in links], pool.addresses)
        else:
            await joining.begin_alone(pool.addresses)
        tasks.create_task(joining.meet(self._wanted), name="meet peers")

    async def _knock(self, joining: Joining, remembered: Sequence[str]) -> tuple[Link, ...]:
        own = set(self._pool.addresses)
        invited = [address for address in self._pool.identity.addresses if address not in own]
        known = [address for address in remembered if address not in own]
        if self._config.role != "bootstrap":
            return await joining.knock(invited, known)
        if not invited and not known:
            return ()
        try:
            return await joining.knock(invited, known)
        except FailureError:
            return ()

    def set_epoch(self, epoch: Epoch) -> None:
        """Use another DHT key from now on; the one before it is still understood."""
        self.discovery.set_epoch(epoch.number, epoch.key)

    def lost(self, link: Link) -> None:
        """``link`` has ended: call its peer again where that may help, and look for others at once."""
        if self._redialing is not None:
            self._redialing.lost(link)
        if self._joining is not None:
            self._joining.look_soon()

    def _addresses(self, observed: Sequence[str]) -> tuple[str, ...]:
        """Where this node says it can be reached; ``observed`` are addresses that others saw it at."""
        if self._config.advertise:
            return self._config.advertise
        listening = self._pool.listening
        seen = [Address.parse(address).host for address in observed]
        hosts = reachable_hosts([address.host for address in listening], seen)
        return tuple(str(Address(host, listening[0].port)) for host in hosts)[:MAX_ADDRESSES]

    def _wanted(self, peer: PeerId) -> bool:
        return peer != self._pool.identity.peer and peer not in self._pool.links


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
