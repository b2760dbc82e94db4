"""Finding others: everybody, or one.

A small swarm is read at its meeting point whole. Where that is full, each look reads the next few shards as
well, and remembers what it found in the others until that expires; so looks stay cheap, and all peers are
known after ``SHARDS / SHARDS_A_LOOK`` of them.
"""

import asyncio
import itertools
from collections.abc import Iterable
from typing import Final

from swarm.dht.limits import MAX_PUBLISHERS, K
from swarm.dht.node import Node
from swarm.dht.reading import Reading
from swarm.dht.rendezvous import SHARDS
from swarm.dht.storage import Held

FULL: Final = MAX_PUBLISHERS * 3 // 4
"""Publishers at the meeting point from which on some may be missing there."""

SHARDS_A_LOOK: Final = 4
"""Shards that one look reads."""

_SHARDS_AT_A_TIME: Final = 4
_LOOKS_FOR_ONE: Final = 2


class Finding:
    """One node's view of who has published."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._shards: dict[bytes, list[Held]] = {}
        self._turn = itertools.cycle(node.rendezvous.shards)

    async def everybody(self, *, thorough: bool) -> list[Held]:
        """The live records of all publishers that are known, one each; all there are where ``thorough``.

        In turns from each node that gave some, the newest of each first: one that makes up many does not come
        before all others.
        """
        meeting = await self._read(self._node.rendezvous.meeting)
        if len(meeting) < FULL:
            self._shards.clear()
            return meeting
        count = SHARDS if thorough else SHARDS_A_LOOK
        await self._look_into(itertools.islice(self._turn, count))
        now = self._node.clock.wall()
        newest: dict[bytes, Held] = {}
        for held in [*meeting, *itertools.chain.from_iterable(self._shards.values())]:
            current = newest.setdefault(held.publisher, held)
            if held.record.sequence > current.record.sequence:
                newest[held.publisher] = held
        return [held for held in newest.values() if held.record.expires > now]

    async def one(self, publisher: bytes) -> Held | None:
        """The live record of ``publisher``; None where nobody has it.

        Where most of those that might have it did not answer, that says nothing, and it is looked for again.
        """
        shard = self._node.rendezvous.shard_of(publisher)
        for _ in range(_LOOKS_FOR_ONE):
            reading = await self._reading(shard, publisher)
            for held in reading.records:
                if held.publisher == publisher:
                    return held
            if 2 * reading.answered >= min(len(self._node.table.contacts()), K):
                break
        return None

    def forget(self) -> None:
        """Drop what was found."""
        self._shards.clear()

    async def _look_into(self, shards: Iterable[bytes]) -> None:
        waiting = list(shards)

        async def work() -> None:
            while waiting:
                shard = waiting.pop()
                self._shards[shard] = await self._read(shard)

        async with asyncio.TaskGroup() as group:
            for _ in range(_SHARDS_AT_A_TIME):
                group.create_task(work())

    async def _read(self, key: bytes) -> list[Held]:
        """What lies under ``key`` here and at those closest to it."""
        reading, belongs = await self._reading(key), self._node.rendezvous.has
        return [held for held in reading.in_turns() if belongs(key, held.publisher)]

    async def _reading(self, key: bytes, publisher: bytes = b"") -> Reading:
        """The same; with ``publisher``, only that one's."""
        node = self._node
        reading = Reading(node.protocol.calls, key, swarm=node.swarm, clock=node.clock)
        for held in node.storage.read(key, now=node.clock.wall()):
            reading.merge(held, node.id)
        await reading.read_from(await node.closest(key), publisher=publisher)
        return reading
