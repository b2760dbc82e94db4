"""The directory: the links that are up, by peer, and how others were called."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from swarm.identity.terms import InviteId
from swarm.ids import PeerId
from swarm.net.dialing import Attempt
from swarm.net.link import Link
from swarm.wire.limits import MAX_ADDRESSES

MAX_MET: Final = 4096
"""Peers that are remembered as members after their link has ended, and peers whose calls are."""


class Directory:
    """At most one link a peer; others can wait for one to come up."""

    def __init__(self) -> None:
        self._links: dict[PeerId, Link] = {}
        self._met: dict[PeerId, InviteId] = {}
        self._attempts: dict[PeerId, dict[str, Attempt]] = {}
        self._risen = asyncio.Event()

    def has_met(self, peer: PeerId) -> bool:
        """Whether a link with ``peer`` is up, or was lately."""
        return peer in self._met

    def invite_of(self, peer: PeerId) -> InviteId | None:
        """The invite by which ``peer`` is a member, where a link with it is up, or was lately."""
        return self._met.get(peer)

    def attempts(self, peer: PeerId) -> tuple[Attempt, ...]:
        """The last call to each address of ``peer``, the latest at the end."""
        return tuple(self._attempts.get(peer, {}).values())

    def tried(self, peer: PeerId, attempts: Iterable[Attempt]) -> None:
        """``peer`` was called so."""
        known = self._attempts.pop(peer, {})
        for attempt in attempts:
            known.pop(attempt.address, None)
            known[attempt.address] = attempt
        self._attempts[peer] = dict(list(known.items())[-MAX_ADDRESSES:])
        if len(self._attempts) > MAX_MET:
            del self._attempts[next(iter(self._attempts))]

    @property
    def links(self) -> Mapping[PeerId, Link]:
        """A live view, which cannot be changed."""
        return MappingProxyType(self._links)

    def add(self, link: Link) -> None:
        """``link`` is up."""
        self._links[link.peer] = link
        self._met.pop(link.peer, None)
        self._met[link.peer] = link.member.invite
        if len(self._met) > MAX_MET:
            del self._met[next(iter(self._met))]
        risen, self._risen = self._risen, asyncio.Event()
        risen.set()

    def remove(self, link: Link) -> None:
        """``link`` is not up any more; where another has taken its place, that one stays."""
        if self._links.get(link.peer) is link:
            del self._links[link.peer]

    async def wait_for(self, peer: PeerId, *, seconds: float) -> Link | None:
        """The link with ``peer``, as soon as there is one; None after ``seconds``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while peer not in self._links:
                    await self._risen.wait()
        return self._links.get(peer)
