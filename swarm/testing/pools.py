"""Pools of one swarm for tests, with handlers that remember everything."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from swarm.clock import Clock, SystemClock
from swarm.identity.authority import Authority
from swarm.identity.chain import Member
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS, Right
from swarm.identity.uses import UseLedger
from swarm.ids import PeerId
from swarm.net.config import PoolConfig
from swarm.net.handlers import Handlers
from swarm.net.link import Link
from swarm.net.network import Network
from swarm.net.pool import Pool
from swarm.testing.hellos import NO_CAPABILITIES
from swarm.wire.messages.base import Message

PATIENCE_SECONDS: Final = 20.0
"""How long a test waits for what must happen."""


class Recorder(Handlers):
    """Remembers what happened, and lets a test wait for it. ``on_arrival`` may raise what a service would."""

    def __init__(self) -> None:
        self.ups: list[Link] = []
        self.downs: list[tuple[PeerId, str]] = []
        self.messages: list[tuple[Message, bytes]] = []
        self.admitted: list[Member] = []
        self.unwanted = ""
        """What every offered payload is refused with; empty to take it."""
        self.on_arrival: Callable[[Message], None] = lambda _: None
        self._changed = asyncio.Event()

    def on_up(self, link: Link) -> None:
        """A link is up."""
        self.ups.append(link)
        self._note()

    def on_down(self, link: Link, reason: str) -> None:
        """A link ended."""
        self.downs.append((link.peer, reason))
        self._note()

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        """A message came."""
        self.messages.append((message, bytes(payload)))
        self._note()
        self.on_arrival(message)

    def on_offer(self, link: Link, message: Message, size: int) -> str:
        """A payload begins."""
        return self.unwanted

    def on_admitted(self, member: Member, credentials: bytes) -> None:
        """Somebody was let in."""
        self.admitted.append(member)

    async def until(self, happened: Callable[["Recorder"], bool]) -> None:
        """Wait until ``happened``; raises TimeoutError after twenty seconds."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not happened(self):
                self._changed.clear()
                await self._changed.wait()

    def _note(self) -> None:
        self._changed.set()


class Pools:
    """A swarm whose members' pools are made on demand, below ``folder``."""

    def __init__(self, folder: Path, *, clock: Clock | None = None, name: str = "test") -> None:
        self.clock = clock or SystemClock()
        self.authority = Authority.create(name, public=False, now=self.clock.wall())
        self._folder = folder
        self._made = 0

    def invite(self, *, rights: frozenset[Right] = ALL_RIGHTS, uses: int = 0, join_by: float = 0) -> Invite:
        """An invite of this swarm."""
        return self.authority.issue(
            label="test", uses=uses, join_by=join_by, rights=rights, now=self.clock.wall()
        )

    def identity(self, invite: Invite | None = None, *, key: PrivateKey | None = None) -> Identity:
        """A member by ``invite``, or by one with all rights."""
        return Identity.join(invite or self.invite(), key=key or PrivateKey.generate(), now=self.clock.wall())

    def pool(
        self,
        network: Network,
        *,
        handlers: Handlers,
        identity: Identity | None = None,
        ledger: UseLedger | None = None,
        **config: Any,
    ) -> Pool:
        """A pool that listens, unless ``config`` says otherwise; see PoolConfig for what else it may say."""
        identity = identity or self.identity()
        self._made += 1
        folder = self._folder / f"{self.authority.name}-{self._made}"
        identity.save(folder)
        fields: dict[str, Any] = {
            "tls": identity.tls_files(folder),
            "role": "peer",
            "capabilities": NO_CAPABILITIES,
            "program": "test",
            "listen": ("", 7423),
        }
        return Pool(
            PoolConfig(**(fields | config)),
            identity=identity,
            network=network,
            clock=self.clock,
            handlers=handlers,
            ledger=ledger,
        )
