"""The networks that a node is on: the machine's own, or those in memory for tests."""

from dataclasses import dataclass, field

from swarm.dht.endpoint import Network as DatagramNetwork
from swarm.dht.endpoint import UdpNetwork
from swarm.net.network import Network, SystemNetwork
from swarm.services.arrival import Neighbourhood


@dataclass(frozen=True, slots=True, kw_only=True)
class Networks:
    """Where streams and datagrams go: the machine's own network, or the one in memory for tests."""

    streams: Network = field(default_factory=SystemNetwork)
    datagrams: DatagramNetwork = field(default_factory=UdpNetwork)
    neighbours: Neighbourhood | None = None
    """How peers in the same local network are found; None looks for none."""
