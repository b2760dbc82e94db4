"""What a node does unasked: looks after contacts, buckets, records and newcomers."""

import asyncio
import itertools
import secrets
from typing import Final

from swarm.dht.calls import Target
from swarm.dht.limits import MAX_HAND_OVERS, K
from swarm.dht.messages import Ping
from swarm.dht.node import Node
from swarm.dht.table import Contact, distance
from swarm.errors import RemoteTimeoutError
from swarm.ids import SHORT_ID_BYTES

STALE_SECONDS: Final = 120.0
"""Contacts that have not been heard for this long are asked whether they are still there: every newcomer
makes itself known to a bootstrap node, and nobody says when they leave."""

_PINGS_AT_A_TIME: Final = 8


class Upkeep:
    """Chores of one node. Each is called now and then; none raises for what other peers do."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._newcomers: asyncio.Queue[Contact] = asyncio.Queue(MAX_HAND_OVERS)
        node.protocol.contacts.on_new = self._on_new

    def _on_new(self, contact: Contact) -> None:
        storing = contact.storing and self._node.reachability.stores_for(contact.address)
        if storing and not self._newcomers.full():
            self._newcomers.put_nowait(contact)

    async def hand_over(self) -> None:
        """For ever: give each newcomer the records that it should hold (Kademlia paper, section 2.5).

        Only the node closest to a key does so, and only where the newcomer is among the k closest, or
        every newcomer would be sent everything by everybody.
        """
        while True:
            newcomer = await self._newcomers.get()
            for key in self._node.storage.held_keys():
                if self._is_closest(key, besides=newcomer) and self._should_hold(newcomer, key):
                    held = self._node.storage.read(key, now=self._node.clock.wall())
                    await self._node.store(newcomer, key, [one.data for one in held])

    def _should_hold(self, newcomer: Contact, key: bytes) -> bool:
        return newcomer.id in {contact.id for contact in self._node.table.closest(key, K)}

    def _is_closest(self, key: bytes, *, besides: Contact) -> bool:
        own = distance(self._node.id, key)
        nearest = itertools.islice(self._node.table.by_distance(key), 2)
        return all(own < distance(one.id, key) for one in nearest if one.id != besides.id)

    async def ping_stale(self) -> None:
        """Ask the contacts that were not heard for long, or did not answer their last call."""
        before = self._node.clock.elapsed() - STALE_SECONDS
        stale = [one for one in self._node.table.contacts() if one.silences or one.heard < before]

        async def work() -> None:
            while stale:
                await self._ping(stale.pop())

        async with asyncio.TaskGroup() as group:
            for _ in range(_PINGS_AT_A_TIME):
                group.create_task(work())

    async def _ping(self, contact: Contact) -> None:
        try:
            await self._node.protocol.calls.call(Target(node=contact.id, address=contact.address), Ping())
        except RemoteTimeoutError:
            # The table has counted the silence.
            return

    async def refresh_buckets(self) -> None:
        """Look up a random id in each bucket where nothing was looked up for an hour."""
        for bucket in self._node.table.lonely_buckets():
            low, high = bucket.range
            target = low + secrets.randbelow(high - low + 1)
            await self._node.closest(target.to_bytes(SHORT_ID_BYTES, "big"))

    def expire(self) -> None:
        """Drop expired records."""
        self._node.storage.expire(self._node.clock.wall())
