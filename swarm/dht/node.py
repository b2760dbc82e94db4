"""One node of the DHT: table, storage and protocol put together, and what it does with them."""

import asyncio
from collections.abc import Callable

from swarm.clock import Clock
from swarm.dht.answering import Answering
from swarm.dht.calls import Target
from swarm.dht.lookup import Lookup
from swarm.dht.messages import Store, Stored, fill
from swarm.dht.proof import node_id
from swarm.dht.protocol import Protocol
from swarm.dht.reachability import Reachability, Storing
from swarm.dht.rendezvous import Rendezvous
from swarm.dht.storage import RecordStorage
from swarm.dht.table import Contact, Table
from swarm.errors import RemoteTimeoutError
from swarm.identity.keys import PrivateKey
from swarm.ids import PeerId, SwarmId


class Node:
    """What every part of :class:`swarm.dht.discovery.Discovery` works on."""

    def __init__(
        self,
        key: PrivateKey,
        *,
        swarm: SwarmId,
        storing: Storing,
        clock: Clock,
        invite_of: Callable[[PeerId], str | None] = lambda _: None,
    ) -> None:
        self.id = node_id(key.public)
        self.swarm = swarm
        self.rendezvous = Rendezvous(swarm)
        self.clock = clock
        self.reachability = Reachability(storing, clock=clock)
        self.table = Table(self.id, clock=clock)
        self.storage = RecordStorage(
            self.id, swarm=swarm, known=lambda peer: invite_of(peer) is not None, belongs=self.rendezvous.has
        )
        self.answering = Answering(
            table=self.table, storage=self.storage, clock=clock, reachability=self.reachability
        )
        self.protocol = Protocol(
            key,
            clock=clock,
            table=self.table,
            reachability=self.reachability,
            answer=self.answering.answer,
            invite_of=invite_of,
        )

    async def closest(self, target: bytes) -> list[Contact]:
        """The contacts closest to ``target`` that answer, closest first; without ourselves."""
        return await Lookup(self.protocol, self.table, target).run()

    async def store(self, contact: Contact, key: bytes, records: list[bytes]) -> list[int]:
        """Hand ``records`` to ``contact`` for ``key``; for each, the sequence that it then holds.

        Zeros from where it stopped answering.
        """
        held: list[int] = []
        target = Target(node=contact.id, address=contact.address)
        while len(held) < len(records):
            page = fill(records[len(held) :])
            try:
                answered = await self.protocol.calls.call(target, Store(key, tuple(page)))
            except RemoteTimeoutError:
                break
            if not isinstance(answered.answer, Stored) or len(answered.answer.held) != len(page):
                break
            held += answered.answer.held
        return held + [0] * (len(records) - len(held))

    async def store_on_closest(self, key: bytes, record: bytes) -> list[int]:
        """Hand ``record`` to the nodes closest to ``key``; for each, the sequence that it then holds."""
        contacts = [one for one in await self.closest(key) if one.storing]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.store(contact, key, [record])) for contact in contacts]
        return [task.result()[0] for task in tasks]
