"""Lookups: the nodes closest to an id.

There are no rounds. Up to alpha calls are under way; each answer at once makes room for the next. A call
whose answer is late no longer counts, nor does its node hold a place among the k, and for each of them one
more may be asked at a time; so a part of the network that died costs one wait, and not one for every three
dead nodes.
"""

import asyncio
import bisect
import contextlib
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

from swarm.dht.addresses import Address, may_pass
from swarm.dht.calls import Answered, Target
from swarm.dht.diversity import diverse
from swarm.dht.limits import (
    ALPHA,
    LOOKUP_SECONDS,
    MAX_ALPHA,
    MAX_LOOKUP_CALLS,
    MAX_NODE_ADDRESSES,
    MAX_REPEATED_LOOKUPS,
    K,
)
from swarm.dht.messages import FindNodes, Nodes
from swarm.dht.protocol import Protocol
from swarm.dht.table import Contact, Table, distance
from swarm.errors import RemoteProtocolError, RemoteTimeoutError


class _State(Enum):
    NEW = auto()
    ASKED = auto()
    DOUBTED = auto()
    ANSWERED = auto()
    FAILED = auto()
    PASSED_OVER = auto()


_SPARE: Final = 3
"""Times k that a lookup takes from the table: the closest of everybody may all be dead."""

_GONE: Final = (_State.FAILED, _State.PASSED_OVER)
_LATE: Final = (_State.DOUBTED,)
_UNFINISHED: Final = (_State.NEW, _State.ASKED, _State.DOUBTED)
"""Tuples: their members are compared by identity, without a hash, for each candidate each time."""


@dataclass(slots=True, kw_only=True, order=True)
class _Candidate:
    distance: int
    node: bytes = field(compare=False)
    address: Address = field(compare=False)
    state: _State = field(compare=False, default=_State.NEW)
    contact: Contact | None = field(compare=False, default=None)
    prefix: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        self.prefix = self.address.neighbourhood

    @property
    def invite(self) -> str | None:
        return self.contact.invite if self.contact is not None else None


class Lookup:
    """One search by ``protocol``'s node for the ``k`` nodes closest to ``target`` that answer."""

    def __init__(self, protocol: Protocol, table: Table, target: bytes, *, k: int = K) -> None:
        self._calls = protocol.calls
        self._contacts = protocol.contacts
        self._own = protocol.node
        self._table = table
        self._target = target
        families = protocol.families
        self._question = FindNodes(target, "IPv4" in families, "IPv6" in families)
        self._k = k
        self._candidates: list[_Candidate] = []
        self._addresses: dict[bytes, set[bytes]] = {}
        """Packed: nearly all that is told of is known, and needs no more than to be found here."""
        self._answered: set[bytes] = set()
        self._asked = 0
        self._late = 0
        self._changed = asyncio.Event()

    async def run(self) -> list[Contact]:
        """The contacts found, closest first, each of which has just answered. Never this node itself.

        Empty where nobody answers. Ends within ``LOOKUP_SECONDS``, with what it has by then.
        """
        for contact in self._table.closest(self._target, _SPARE * self._k):
            self._add(contact.id, contact.address, contact.packed)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOKUP_SECONDS):
                await self._search()
                if len(self._answered) < self._k and self._count(_State.PASSED_OVER) > len(self._answered):
                    # That most are gone is less likely than that we were slow, or cut off for a while.
                    await self._search_again(_State.PASSED_OVER)
                for _ in range(MAX_REPEATED_LOOKUPS):
                    if self._answered or len(self._candidates) >= self._k:
                        break
                    await self._search_again(_State.FAILED)
        self._table.looked_up(self._target)
        answered = self._nearest(besides=(*_GONE, *_UNFINISHED))
        return [one.contact for one in answered if one.contact is not None]

    async def _search(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = []
            while not self._is_finished():
                while (candidate := self._next()) is not None:
                    candidate.state = _State.ASKED
                    self._asked += 1
                    tasks.append(group.create_task(self._ask(candidate)))
                self._changed.clear()
                await self._changed.wait()
            for task in tasks:
                task.cancel()

    async def _search_again(self, state: _State) -> None:
        """Ask those in ``state`` as if they were new: where few are known, datagrams may have been lost."""
        for candidate in self._candidates:
            if candidate.state is state:
                candidate.state = _State.NEW
        await self._search()

    def _count(self, state: _State) -> int:
        return sum(one.state is state for one in self._candidates)

    def _nearest(self, *, besides: tuple[_State, ...]) -> list[_Candidate]:
        """The k closest, not all alike, whose state is none of ``besides``."""
        counted = [one for one in self._candidates if one.state not in besides]
        return diverse(counted, self._k)

    def _is_finished(self) -> bool:
        """Whether the k closest have answered, and nobody closer may still do."""
        waited_for = _UNFINISHED if self._asked < MAX_LOOKUP_CALLS else (_State.ASKED, _State.DOUBTED)
        return not any(one.state in waited_for for one in self._nearest(besides=_GONE))

    def _next(self) -> _Candidate | None:
        """The closest that may be asked now. A late one holds no place among the k: others are asked."""
        if self._count(_State.ASKED) >= min(ALPHA + self._late, MAX_ALPHA) or self._asked >= MAX_LOOKUP_CALLS:
            return None
        nearest = self._nearest(besides=(*_GONE, *_LATE))
        return next((one for one in nearest if one.state is _State.NEW), None)

    async def _ask(self, candidate: _Candidate) -> None:
        def doubt() -> None:
            candidate.state = _State.DOUBTED
            self._late += 1
            self._changed.set()

        target = Target(node=candidate.node, address=candidate.address)
        try:
            answered = await self._calls.call(target, self._question, on_doubt=doubt)
            self._take(candidate, answered)
        except (RemoteTimeoutError, RemoteProtocolError):
            candidate.state = _State.FAILED
        self._changed.set()

    def _take(self, candidate: _Candidate, answered: Answered) -> None:
        if not isinstance(answered.answer, Nodes):
            raise RemoteProtocolError("a node answers another question than it was asked")
        candidate.state = _State.ANSWERED
        self._answered.add(candidate.node)
        candidate.contact = answered.contact
        if len(self._addresses[candidate.node]) > 1:
            self._candidates = [
                one for one in self._candidates if one.node != candidate.node or one is candidate
            ]
        for entry in answered.answer.nodes:
            if entry.address in self._addresses.get(entry.node, ()):
                continue
            address = Address.unpack(entry.address)
            if may_pass(address, between=candidate.address):
                self._add(entry.node, address, entry.address)

    def _add(self, node: bytes, address: Address, packed: bytes) -> None:
        """Count a candidate. A node may be told of at a few addresses, lest a liar hides it behind one."""
        addresses = self._addresses.setdefault(node, set())
        known = node == self._own or node in self._answered or packed in addresses
        if known or len(addresses) >= MAX_NODE_ADDRESSES:
            return
        addresses.add(packed)
        state = _State.PASSED_OVER if self._contacts.is_silent(node, address) else _State.NEW
        candidate = _Candidate(distance=distance(node, self._target), node=node, address=address, state=state)
        candidate.contact = self._contacts.find(node, address)
        bisect.insort(self._candidates, candidate)
