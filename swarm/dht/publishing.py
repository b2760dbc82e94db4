"""Our own record: signed anew with a rising sequence, stored, looked after."""

import asyncio
from dataclasses import dataclass

from swarm.dht.node import Node
from swarm.dht.reading import Reading
from swarm.identity.keys import PrivateKey
from swarm.wire.messages.hello import Role
from swarm.wire.records.peer import sign_record


@dataclass(frozen=True, slots=True, kw_only=True)
class _Claim:
    addresses: tuple[str, ...]
    role: Role


class Publishing:
    """Keeps one record of ours alive in the network. ``lifetime`` is in seconds."""

    def __init__(self, node: Node, *, key: PrivateKey, lifetime: float) -> None:
        self._node = node
        self._key = key
        self._lifetime = lifetime
        self._claim: _Claim | None = None
        self._record = b""
        self._sequence = 0
        self._signed = 0.0
        self.confirmed = 0
        """Nodes that confirmed storing the record when it was published last."""

    async def publish(self, addresses: tuple[str, ...], role: Role) -> int:
        """Publish from now on that we are reached at ``addresses``.

        Returns the number of other nodes that confirmed. Raises MisuseError where the addresses do not fit.
        """
        return await self._store(_Claim(addresses=addresses, role=role))

    async def refresh(self) -> None:
        """Sign the record anew where a third of its life is over, and hand it to those that should have it.

        Holders depart, and others come closer than they were; who has it already is told nothing new.
        """
        if self._claim is None:
            return
        if self._node.clock.elapsed() - self._signed >= self._lifetime / 3:
            await self._store(self._claim)
        else:
            self.confirmed = (await self._hand_out()).count(self._sequence)

    async def confirm(self) -> bool:
        """Whether another node gives us back the record that we published last."""
        if self._claim is None:
            return False
        node = self._node
        reading = Reading(node.protocol.calls, self._shard, swarm=node.swarm, clock=node.clock)
        await reading.read_from(await node.closest(self._shard), publisher=node.id)
        return any(
            held.publisher == node.id and held.record.sequence == self._sequence for held in reading.records
        )

    @property
    def _shard(self) -> bytes:
        return self._node.rendezvous.shard_of(self._node.id)

    async def _hand_out(self) -> list[int]:
        """Store our record under its keys; the sequences that the nodes closest to its shard hold now.

        The meeting point may be full of others: only the shard counts.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node.store_on_closest(self._node.rendezvous.meeting, self._record))
            shard = group.create_task(self._node.store_on_closest(self._shard, self._record))
        return shard.result()

    async def _store(self, claim: _Claim) -> int:
        sequence, held = await self._sign_and_store(claim, at_least=0)
        newest = max(held, default=0)
        if newest > sequence:
            # Our clock was ahead when we published in an earlier run.
            sequence, held = await self._sign_and_store(claim, at_least=newest + 1)
        self.confirmed = held.count(sequence)
        return self.confirmed

    async def _sign_and_store(self, claim: _Claim, *, at_least: int) -> tuple[int, list[int]]:
        """The sequence that was published, and those that other nodes hold now."""
        clock = self._node.clock
        now = clock.wall()
        sequence = max(self._sequence + 1, int(now * 1000), at_least)
        record = sign_record(
            self._key,
            swarm=self._node.swarm,
            sequence=sequence,
            expires=now + self._lifetime,
            role=claim.role,
            addresses=claim.addresses,
        )
        self._claim, self._sequence, self._signed = claim, sequence, clock.elapsed()
        self._record = record
        for key in self._node.rendezvous.keys_of(self._node.id):
            self._node.storage.keep_own(key, record, now=now)
        held = await self._hand_out()
        if not any(held) and self._node.table.contacts():
            # Others are there: what was sent to them, or their answers, may have been lost.
            held = await self._hand_out()
        return sequence, held
