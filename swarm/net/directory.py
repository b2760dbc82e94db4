"""The directory: the links that are up, by peer."""

import asyncio
import contextlib
from collections.abc import Mapping
from types import MappingProxyType

from swarm.ids import PeerId
from swarm.net.link import Link


class Directory:
    """At most one link a peer; others can wait for one to come up."""

    def __init__(self) -> None:
        self._links: dict[PeerId, Link] = {}
        self._risen = asyncio.Event()

    @property
    def links(self) -> Mapping[PeerId, Link]:
        """A live view, which cannot be changed."""
        return MappingProxyType(self._links)

    def add(self, link: Link) -> None:
        """``link`` is up."""
        self._links[link.peer] = link
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
