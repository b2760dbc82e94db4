"""Nodes of this program, each with a socket of its own on loopback."""

import random
from typing import Final

from benchmarks.dhts.contest import Outcome, timed
from swarm.clock import SystemClock
from swarm.dht.addresses import Address
from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.dht.endpoint import Endpoint, Receive, UdpNetwork
from swarm.errors import FailureError
from swarm.identity.keys import PrivateKey
from swarm.ids import PeerId, swarm_id

LOOPBACK: Final = "127.0.0.1"
_SWARM: Final = swarm_id(bytes(32))
_EPOCH_KEY: Final = bytes(range(32))
_JOIN_SECONDS: Final = 60.0


class LossyNetwork(UdpNetwork):
    """This machine's network, on which a share of the datagrams that arrive is not seen."""

    def __init__(self, loss: float, *, seed: int) -> None:
        self._loss = loss
        self._random = random.Random(seed)

    async def open(self, hosts: tuple[str, ...], port: int, receive: Receive) -> Endpoint:
        """As UdpNetwork does."""

        def take(data: bytes, source: Address) -> None:
            if self._random.random() >= self._loss:
                receive(data, source)

        return await super().open(hosts, port, take)


class Ours:
    """A contestant."""

    def __init__(self, *, loss: float = 0.0, seed: int = 0) -> None:
        self._network = LossyNetwork(loss, seed=seed)
        self._nodes: dict[int, Discovery] = {}
        self._peers: dict[int, PeerId] = {}

    async def join(self, number: int) -> Outcome:
        """Start a node and enter through node 0."""
        key = PrivateKey.generate()
        config = DiscoveryConfig(swarm=_SWARM, listen=(LOOPBACK,), port=0, join_deadline=_JOIN_SECONDS)
        node = Discovery(config, key=key, clock=SystemClock(), network=self._network)
        node.set_epoch(1, _EPOCH_KEY)
        await node.start()
        self._nodes[number], self._peers[number] = node, key.peer
        return await timed(self._enter(node, number))

    async def _enter(self, node: Discovery, number: int) -> bool:
        try:
            report = await node.join([self._address(0)] if number else [])
        except FailureError:
            return False
        return not number or report.contacts > 0

    def _address(self, number: int) -> str:
        return f"{LOOPBACK}:{self._nodes[number].port}"

    async def set(self, number: int) -> Outcome:
        """Publish."""
        return await timed(self._publish(number))

    async def _publish(self, number: int) -> bool:
        return await self._nodes[number].publish([self._address(number)], "peer") > 0

    async def get(self, number: int, other: int) -> Outcome:
        """Look up by PeerId."""
        return await timed(self._find(number, other))

    async def _find(self, number: int, other: int) -> bool:
        return await self._nodes[number].find_peer(self._peers[other]) is not None

    async def found(self, number: int) -> int:
        """How many publishers this node finds without knowing whom to look for."""
        return len(await self._nodes[number].find(thorough=True))

    async def stop(self, number: int) -> None:
        """Close the socket."""
        await self._nodes[number].aclose()

    async def aclose(self) -> None:
        """Close all that is open."""
        for node in self._nodes.values():
            await node.aclose()
