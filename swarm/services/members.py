"""The members this node has met, as their certificates and hellos prove them; kept over restarts."""

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

_log = get_log(__name__)


class Met(Struct, frozen=True, kw_only=True):
    """One member. ``since`` and ``seen`` are wall times: of the first and of the last meeting."""

    peer: str
    role: Role
    invite: str
    label: str
    addresses: tuple[str, ...]
    device: str
    memory: int
    since: float
    seen: float


class Members:
    """Whom this node has met, linked or gone."""

    def __init__(self, clock: Clock, *, known: tuple[Met, ...] = ()) -> None:
        self._clock = clock
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
        )
        if len(self._met) > MAX_MEMBERS:
            del self._met[next(iter(self._met))]

    def on_down(self, peer: PeerId) -> None:
        """A link ended."""
        if peer in self._met:
            self._met[peer] = msgspec.structs.replace(self._met[peer], seen=self._clock.wall())

    def all(self) -> tuple[Met, ...]:
        """Everybody, those met last at the end."""
        return tuple(self._met.values())

    def addresses(self) -> tuple[str, ...]:
        """Where those met last said they could be reached, newest first."""
        return tuple(dict.fromkeys(address for met in reversed(self.all()) for address in met.addresses))


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
