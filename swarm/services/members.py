"""The members this node has met, as their certificates and hellos prove them; kept over restarts."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from swarm.clock import Clock
from swarm.identity.files import read_state, write_private
from swarm.ids import PeerId
from swarm.log import get_log
from swarm.net.link import Link
from swarm.wire.messages.hello import Role

MEMBERS_FILE: Final = "members.json"

MAX_MEMBERS: Final = 10_000
"""Members remembered; those met longest ago make room."""

KEEP_SECONDS: Final = 5.0
"""From a meeting to the disk: others that come meanwhile are written in one go."""

_log = get_log(__name__)


class Met(Struct, frozen=True, kw_only=True):
    """One member. ``since`` and ``seen`` are wall times: of the first and of the last meeting."""

    peer: str
    role: Role
    invite: str
    label: str
    addresses: tuple[str, ...]
    """Where it says that it can be reached."""
    device: str
    memory: int
    since: float
    seen: float
    reached: str = ""
    """The address at which it answered a call last; empty where it never did."""


class Members:
    """Whom this node has met, linked or gone."""

    def __init__(self, clock: Clock, *, known: tuple[Met, ...] = ()) -> None:
        self._clock = clock
        self._changed = asyncio.Event()
        self._met: dict[str, Met] = {met.peer: met for met in known}

    def on_up(self, link: Link) -> None:
        """A link is up."""
        hello, member, now = link.hello, link.member, self._clock.wall()
        known = self._met.pop(link.peer, None)
        self._met[link.peer] = Met(
            peer=link.peer,
            role=hello.role,
            invite=member.invite,
            label=member.label,
            addresses=hello.addresses,
            device=hello.capabilities.device,
            memory=hello.capabilities.memory,
            since=known.since if known is not None else now,
            seen=now,
            reached=link.address if link.dialed else known.reached if known is not None else "",
        )
        if len(self._met) > MAX_MEMBERS:
            del self._met[next(iter(self._met))]
        self._changed.set()

    def on_down(self, peer: PeerId) -> None:
        """A link ended."""
        if peer in self._met:
            self._met[peer] = msgspec.structs.replace(self._met[peer], seen=self._clock.wall())

    def all(self) -> tuple[Met, ...]:
        """Everybody, those met last at the end."""
        return tuple(self._met.values())

    def addresses(self) -> tuple[str, ...]:
        """Where members answered before, then where they say they can be reached; those met last first."""
        latest = self.all()[::-1]
        reached = [met.reached for met in latest if met.reached]
        return tuple(dict.fromkeys([*reached, *(address for met in latest for address in met.addresses)]))

    async def keep(self, save: Callable[[tuple[Met, ...]], Awaitable[object]]) -> None:
        """For ever: ``save`` whom this node has met when that is news, and not too often.

        So what is known outlives a program that is killed.
        """
        while True:
            await self._changed.wait()
            await asyncio.sleep(KEEP_SECONDS)
            self._changed.clear()
            await save(self.all())


def load_members(folder: Path) -> tuple[Met, ...]:
    """The members kept in ``folder``; none where there is no file, or a damaged one: they are met again."""
    path = folder / MEMBERS_FILE
    if not path.exists():
        return ()
    try:
        return msgspec.json.decode(read_state(path), type=tuple[Met, ...])
    except msgspec.DecodeError:
        _log.warning("the list of members is unreadable, and begins anew", file=str(path))
        return ()


def save_members(folder: Path, members: tuple[Met, ...]) -> None:
    """Keep ``members`` in ``folder``; raises FailureError with the cause."""
    write_private(folder / MEMBERS_FILE, msgspec.json.encode(members))
