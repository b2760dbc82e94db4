"""Reading: the live records under a key, merged by publisher from the nodes that hold them.

The reader says with each request which records it has, so a node that holds nothing else answers with an
empty page, and the first page of each further node is news.
"""

import asyncio
import contextlib
import itertools

from swarm.clock import Clock
from swarm.dht.calls import Calls, Target
from swarm.dht.limits import ALPHA, LOOKUP_SECONDS, MAX_ALPHA, MAX_GIVEN, MAX_KNOWN, MAX_PAGES
from swarm.dht.messages import FindRecords, Records, record_tag
from swarm.dht.storage import Held, check_record
from swarm.dht.table import Contact
from swarm.errors import RemoteProtocolError, RemoteTimeoutError
from swarm.ids import SwarmId


class Reading:
    """One search for the live records under ``key``, merged by publisher."""

    def __init__(self, calls: Calls, key: bytes, *, swarm: SwarmId, clock: Clock) -> None:
        self._calls = calls
        self._key = key
        self._swarm = swarm
        self._clock = clock
        self._merged: dict[bytes, Held] = {}
        self._givers: dict[bytes, bytes] = {}
        """Which node gave the record of each publisher."""
        self._seen: set[bytes] = set()
        self.answered = 0
        """Nodes that have answered."""

    def merge(self, held: Held, giver: bytes) -> None:
        """Count a record that node ``giver`` gave, if it is newer than what is there of its publisher."""
        current = self._merged.get(held.publisher)
        if current is None or held.record.sequence > current.record.sequence:
            self._merged[held.publisher] = held
            self._givers[held.publisher] = giver

    @property
    def records(self) -> list[Held]:
        """What has been found, the newest first."""
        now = self._clock.wall()
        return sorted(
            (one for one in self._merged.values() if one.record.expires > now), key=lambda one: one.rank
        )

    def in_turns(self) -> list[Held]:
        """What has been found, in turns from each node that gave some, the newest of each first."""
        piles: dict[bytes, list[Held]] = {}
        for held in self.records:
            piles.setdefault(self._givers[held.publisher], []).append(held)
        rounds = itertools.zip_longest(*piles.values())
        return [held for one_round in rounds for held in one_round if held is not None]

    async def read_from(self, contacts: list[Contact], *, publisher: bytes = b"") -> None:
        """Read all that each of ``contacts`` holds (of ``publisher`` only, where one is given).

        More of them at a time in the second case: what one has said leaves nothing out of the next answer.
        Ends within ``LOOKUP_SECONDS``, with what it has by then.
        """
        waiting = list(reversed(contacts))

        async def work() -> None:
            while waiting:
                await self._read_one(waiting.pop(), publisher)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOKUP_SECONDS), asyncio.TaskGroup() as group:
                for _ in range(MAX_ALPHA if publisher else ALPHA):
                    group.create_task(work())

    async def _read_one(self, contact: Contact, publisher: bytes) -> None:
        target = Target(node=contact.id, address=contact.address)
        cursor = b""
        given = 0
        for _ in range(MAX_PAGES):
            question = FindRecords(self._key, self._tags(), cursor, publisher)
            try:
                answered = await self._calls.call(target, question)
            except RemoteTimeoutError:
                return
            if not isinstance(answered.answer, Records):
                return
            self.answered += not cursor
            given += len(answered.answer.records)
            if given > MAX_GIVEN:
                return
            for data in answered.answer.records:
                self._take(data, contact.id)
            if answered.answer.cursor <= cursor:
                return
            cursor = answered.answer.cursor

    def _take(self, data: bytes, giver: bytes) -> None:
        if data in self._seen:
            return
        self._seen.add(data)
        try:
            self.merge(check_record(data, swarm=self._swarm, now=self._clock.wall()), giver)
        except RemoteProtocolError:
            # Its holder may have kept it in good faith until it expired; a forged one is worth no more.
            return

    def _tags(self) -> bytes:
        known = self.records[:MAX_KNOWN]
        return b"".join(record_tag(held.publisher, held.record.sequence) for held in known)
