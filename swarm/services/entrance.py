"""How a node gets into its swarm: its ports, its addresses, the epoch key, joining (decisions D1, D2)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from swarm.clock import Clock
from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.dht.endpoint import Network as DatagramNetwork
from swarm.dht.reachability import Storing
from swarm.errors import FailureError, LocalError
from swarm.ids import PeerId
from swarm.net.address import Address
from swarm.net.interfaces import reachable_hosts
from swarm.net.link import Link
from swarm.net.pool import Pool
from swarm.protocol.welcome import Epoch
from swarm.services.arrival import Arrival, Neighbourhood
from swarm.services.context import Context
from swarm.services.joining import JoinState
from swarm.services.revoked import Revoked
from swarm.wire.limits import MAX_ADDRESSES
from swarm.wire.messages.hello import Role
from swarm.wire.records.peer import PeerRecord

_STORING: Final[dict[Role, Storing]] = {"bootstrap": "always", "peer": "reachable", "author": "never"}
"""Who holds records of others: bootstrap nodes are run where they can be reached, authors leave soon."""

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
    """Opens the ports, and lets the node arrive through them."""

    def __init__(
        self,
        pool: Pool,
        config: EntranceConfig,
        *,
        clock: Clock,
        network: DatagramNetwork,
        neighbourhood: Neighbourhood | None = None,
    ) -> None:
        self._pool = pool
        self._config = config
        self._clock = clock
        self._network = network
        self._neighbourhood = neighbourhood
        self._discovery: Discovery | None = None
        self._arrival: Arrival | None = None
        self.wants: Callable[[PeerId], bool] = lambda _: True
        """Whether a peer that is found is to be called, if it is not linked."""
        self._started = clock.wall()

    @property
    def discovery(self) -> Discovery:
        """The node's use of the DHT; raises LocalError before :meth:`open`."""
        if self._discovery is None:
            raise LocalError("the node has not been entered")
        return self._discovery

    @property
    def state(self) -> JoinState:
        """What joining waits for."""
        return self._arrival.state if self._arrival else JoinState(waiting="the start", since=self._started)

    @property
    def has_joined(self) -> bool:
        """Whether this node was in the swarm, or has begun one."""
        return self._arrival is not None and self._arrival.has_joined

    def unreached(self) -> tuple[PeerRecord, ...]:
        """See ``Arrival.unreached``."""
        return self._arrival.unreached() if self._arrival is not None else ()

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
                storing=_STORING[self._config.role],
                state=self._config.contacts,
            ),
            key=identity.key,
            clock=self._clock,
            network=self._network,
            invite_of=self._pool.invite_of,
        )
        await discovery.start()
        epoch = self._pool.reception.epoch
        discovery.set_epoch(epoch.number, epoch.key)
        return discovery

    async def aclose(self) -> None:
        """Close what :meth:`open` opened beside the pool."""
        if self._discovery is not None:
            await self._discovery.aclose()

    async def join(self, context: Context, remembered: Sequence[str], *, revoked: Revoked) -> None:
        """Join the swarm, then look out for other peers; see ``Arrival.join``.

        Discovery begins once ``revoked`` has caught up with those who opened.
        """
        self._arrival = Arrival(
            context,
            self._pool,
            self.discovery,
            revoked=revoked,
            role=self._config.role,
            locate=self._addresses,
        )
        await self._arrival.join(remembered, self._neighbourhood, self.wants)

    def referred(self, peer: PeerId, addresses: Sequence[str]) -> None:
        """``peer`` has no room for this node, and says who may."""
        if self._arrival is not None:
            self._arrival.referred(peer, addresses)

    def linked(self) -> None:
        """A link is up."""
        if self._arrival is not None:
            self._arrival.on_up()

    def set_epoch(self, epoch: Epoch) -> None:
        """Use another DHT key from now on; the one before it is still understood."""
        self.discovery.set_epoch(epoch.number, epoch.key)

    def lost(self, link: Link) -> None:
        """``link`` has ended."""
        if self._arrival is not None:
            self._arrival.on_down(link)

    def _addresses(self, observed: Sequence[str]) -> tuple[str, ...]:
        """Where this node says it can be reached; ``observed`` are addresses that others saw it at."""
        if self._config.advertise:
            return self._config.advertise
        listening = self._pool.listening
        seen = [Address.parse(address).host for address in observed]
        hosts = reachable_hosts([address.host for address in listening], seen)
        return tuple(str(Address(host, listening[0].port)) for host in hosts)[:MAX_ADDRESSES]
