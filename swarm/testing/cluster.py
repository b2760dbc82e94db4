"""A swarm in one process: real nodes with real identities, over loopback or over networks in memory.

::

    async with Cluster(folder, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        peers = [await cluster.add_peer(memory=64 * MIB) for _ in range(3)]
        author = await cluster.add_author()
        job = await author.author.publish(prepare_job(job), patience=30)
"""

import asyncio
import dataclasses
import itertools
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final, Self, TypeVar

import torch

from swarm.clock import Clock, SystemClock
from swarm.identity.authority import Authority
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS
from swarm.net.address import Address
from swarm.net.memory import MemoryNetwork
from swarm.net.multicast import Multicast
from swarm.services.networks import Networks
from swarm.services.node import Node, NodeConfig
from swarm.services.training.node import Gift, TrainingNode, capabilities
from swarm.testing.datagrams import MemoryDatagrams
from swarm.wire.limits import GIB, MAX_LINKS
from swarm.wire.messages.hello import Capabilities, Role

LOOPBACK: Final = "127.0.0.1"

AnyNode = TypeVar("AnyNode", bound=Node)

NetworksOf = Callable[[str], Networks]
"""The networks that the host with this numeric address is on."""


def loopback_networks(_: str) -> Networks:
    """The machine's own network."""
    return Networks()


def home_networks(_: str) -> Networks:
    """The machine's own network, where peers also find each other by multicast, on loopback."""
    return Networks(neighbours=Multicast(interfaces=(LOOPBACK,)))


def memory_networks() -> NetworksOf:
    """One network in memory; each node is a host of its own, at 10.0.0.1 and so on."""
    streams, datagrams = MemoryNetwork(), MemoryDatagrams(delay=0.0)

    def networks(host: str) -> Networks:
        return Networks(streams=streams.host(host), datagrams=datagrams)

    return networks


class Cluster:
    """A swarm; an asynchronous context manager that ends every node it has made."""

    def __init__(
        self, folder: Path, *, networks: NetworksOf = loopback_networks, clock: Clock | None = None
    ) -> None:
        self.clock = clock or SystemClock()
        self.authority = Authority.create("test", public=False, now=self.clock.wall())
        self.addresses: tuple[str, ...] = ()
        """Of the bootstrap nodes; later invites have them."""
        self._folder = folder
        self._networks = networks
        self._memory = networks not in {loopback_networks, home_networks}
        self._numbers = itertools.count(1)
        self._nodes: dict[Node, AsyncExitStack] = {}
        self._moved = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        for node in reversed(tuple(self._nodes)):
            await self.end(node)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Those that have not been ended."""
        return tuple(self._nodes)

    async def end(self, node: Node) -> None:
        """Let a node say goodbye and go."""
        await self._nodes.pop(node).aclose()

    def invite(self) -> Invite:
        """An invite with all rights."""
        return self.authority.issue(
            label="test", rights=ALL_RIGHTS, addresses=self.addresses, now=self.clock.wall()
        )

    async def add_bootstrap(self, *, links: int = MAX_LINKS) -> Node:
        """Start a bootstrap node with so many links at most; those that come later are invited to it."""
        nothing = Capabilities(memory=0, device="", torch="", operators="", like="")
        config, identity = self._place("bootstrap", nothing)
        config = dataclasses.replace(config, links=links)
        node = Node(config, identity=identity, clock=self.clock, networks=self._networks(config.listen.host))
        await self.enter(node)
        self.addresses = (*self.addresses, *node.addresses)
        return node

    async def add_peer(
        self, *, memory: int, accepts: str = "any", up: int = 0, compiles: bool = False
    ) -> TrainingNode:
        """Start a peer that gives ``memory`` bytes to stages, and ``up`` bytes a second, all it has for 0."""
        gift = Gift(device=torch.device("cpu"), memory=memory, accepts=accepts, compiles=compiles)
        return await self._add("peer", gift, up=up)

    def make_peer(self, invite: Invite) -> Node:
        """A peer by ``invite`` that gives nothing, for :meth:`enter`."""
        nothing = Capabilities(memory=0, device="", torch="", operators="", like="")
        config, identity = self._place("peer", nothing, invite)
        return Node(config, identity=identity, clock=self.clock, networks=self._networks(config.listen.host))

    async def add_author(self) -> TrainingNode:
        """Start a node that publishes jobs."""
        return await self._add("author", Gift(device=torch.device("cpu"), memory=0))

    async def start_again(self, node: AnyNode) -> AnyNode:
        """A node in the home of ``node``, which has ended, on the port that it had."""
        port = Address.parse(node.addresses[0]).port
        config = dataclasses.replace(node.config, listen=Address(node.config.listen.host, port))
        identity, networks = Identity.load(config.folder), self._networks(config.listen.host)
        kind: Callable[..., AnyNode] = type(node)
        gift = {"gift": node.gift} if isinstance(node, TrainingNode) else {}
        again = kind(config, identity=identity, clock=self.clock, networks=networks, **gift)
        await self.enter(again)
        return again

    async def _add(self, role: Role, gift: Gift, *, up: int = 0) -> TrainingNode:
        config, identity = self._place(role, capabilities(gift))
        config = dataclasses.replace(config, up=up)
        return await self._start(config, gift, identity)

    async def _start(self, config: NodeConfig, gift: Gift, identity: Identity) -> TrainingNode:
        networks = self._networks(config.listen.host)
        node = TrainingNode(config, gift=gift, identity=identity, clock=self.clock, networks=networks)
        await self.enter(node)
        return node

    async def until(self, holds: Callable[[], bool], *, seconds: float = 60.0) -> None:
        """Return once ``holds`` does, looking whenever anything happens in the swarm.

        Raises TimeoutError after ``seconds`` of real time: a deadline that catches hangs.
        """
        async with asyncio.timeout(seconds):
            while not holds():
                self._moved.clear()
                await self._moved.wait()

    async def enter(self, node: Node) -> None:
        """Let ``node`` join; raises what keeps it from that."""
        node.story.listeners.append(lambda _: self._moved.set())
        node.jobs.on_change.append(lambda _: self._moved.set())
        node.gossip.on_change.append(self._moved.set)
        stack = AsyncExitStack()
        await stack.enter_async_context(node)
        self._nodes[node] = stack

    def _place(
        self, role: Role, offered: Capabilities, invite: Invite | None = None
    ) -> tuple[NodeConfig, Identity]:
        number = next(self._numbers)
        folder = self._folder / f"node-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        identity = Identity.join(invite or self.invite(), key=PrivateKey.generate(), now=self.clock.wall())
        identity.save(folder)
        host = f"10.0.0.{number}" if self._memory else LOOPBACK
        config = NodeConfig(folder=folder, role=role, listen=Address(host, 0), disk=GIB, capabilities=offered)
        return config, identity


def holders(nodes: Sequence[Node]) -> dict[str, list[int]]:
    """Which stages each of ``nodes`` holds, by PeerId."""
    return {node.identity.peer: [held.stage for held in node.held()] for node in nodes}
