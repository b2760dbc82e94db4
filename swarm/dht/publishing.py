"""Our own record: signed anew with a rising sequence, stored, looked after."""

from dataclasses import dataclass

from swarm.dht.node import Node
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
        """Publish again where a third of the record's life is over, or nobody else has it any more."""
        if self._claim is None:
            return
        age = self._node.clock.elapsed() - self._signed
        if age >= self._lifetime / 3 or not await self.confirm():
            await self._store(self._claim)

    async def confirm(self) -> bool:
        """Whether another node gives us back the record that we published last."""
        if self._claim is None:
            return False
        found = await self._node.read(publisher=self._node.id, local=False)
        return any(
            held.publisher == self._node.id and held.record.sequence == self._sequence for held in found
        )

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
        self._node.storage.keep_own(self._node.rendezvous, record, now=now)
        return sequence, await self._node.store_on_closest(record)
