"""Trust: what each peer has cost this node in vain, on all of its links together (decision D1).

::

    strike    something useless, such as a message that nobody takes; too many at a stretch end the link
    offence   a link that this node had to end because the other side broke the protocol
    ban       more offences than chance explains: no link with this PeerId for hours

Strikes and offences are forgotten with time, so that who is only out of date is not shut out for good. They
belong to the PeerId: hanging up and calling again wipes out nothing. A ban keeps out who has one identity;
what it does not stop is said in docs/THREAT_MODEL.md.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from swarm.identity.chain import show_time
from swarm.ids import PeerId
from swarm.protocol.bucket import Bucket
from swarm.wire.text import printable

MAX_STRIKES: Final = 1000
"""Useless things that a peer may do at a stretch: an honest one goes on for a round trip after a job's end,
with up to hundreds of steps a second."""
STRIKES_A_SECOND: Final = 20.0
"""How fast they are forgotten: at 1 ms each, 2 % of a processor."""
MAX_OFFENCES: Final = 5
"""Offences at a stretch that are put down to chance, or to versions that do not quite fit."""
OFFENCE_SECONDS: Final = 6 * 3600.0
"""How long it takes to forget one."""
BAN_SECONDS: Final = 6 * 3600.0
"""How long a ban lasts: one offence is forgotten by then, and the second one brings the next ban."""
MAX_PEERS: Final = 4096
"""Peers that are remembered; those who did nothing for longest make room, the banned last."""
MAX_REASON_LENGTH: Final = 200
"""Characters of what a ban says of the last offence."""


class Ban(Struct, frozen=True, kw_only=True):
    """That ``peer`` is out until ``until`` (wall seconds), and for what."""

    peer: PeerId
    until: float
    reason: str


class _Standing:
    __slots__ = ("ban", "offences", "strikes")

    def __init__(self, *, elapsed: float, wall: float, ban: Ban | None = None) -> None:
        self.strikes = Bucket(most=MAX_STRIKES, a_second=STRIKES_A_SECOND, now=elapsed)
        self.offences = Bucket(most=MAX_OFFENCES, a_second=1 / OFFENCE_SECONDS, now=wall)
        self.ban = ban


class Trust:
    """The standing of every peer that has cost something. Strikes use elapsed time, all else wall time."""

    def __init__(self, bans: Iterable[Ban] = ()) -> None:
        self._peers = {ban.peer: _Standing(elapsed=0.0, wall=0.0, ban=ban) for ban in bans}

    def __len__(self) -> int:
        """How many peers are remembered."""
        return len(self._peers)

    def strike(self, peer: PeerId, *, elapsed: float, wall: float) -> bool:
        """``peer`` did something in vain; returns whether that was once too often."""
        return self._standing(peer, elapsed=elapsed, wall=wall).strikes.add(now=elapsed)

    def offend(self, peer: PeerId, what: str, *, elapsed: float, wall: float) -> Ban | None:
        """``peer`` broke the protocol by ``what``; returns its ban where that was once too often."""
        standing = self._standing(peer, elapsed=elapsed, wall=wall)
        if not standing.offences.add(now=wall):
            return None
        standing.ban = Ban(peer=peer, until=wall + BAN_SECONDS, reason=printable(what)[:MAX_REASON_LENGTH])
        return standing.ban

    def bans(self, *, wall: float) -> tuple[Ban, ...]:
        """The bans that hold at ``wall``."""
        return tuple(s.ban for s in self._peers.values() if s.ban is not None and wall < s.ban.until)

    def sentence(self, peer: PeerId, *, wall: float) -> str:
        """Why ``peer`` is out, addressed to it, and what it can do; empty where it is not."""
        standing = self._peers.get(peer)
        ban = standing.ban if standing is not None else None
        if ban is None or wall >= ban.until:
            return ""
        return (
            f"you broke the protocol again and again, last thus: {ban.reason}; pip install -U fusion-swarm, "
            f"and come back after {show_time(ban.until)}"
        )

    def _standing(self, peer: PeerId, *, elapsed: float, wall: float) -> _Standing:
        standing = self._peers.pop(peer, None) or _Standing(elapsed=elapsed, wall=wall)
        self._peers[peer] = standing
        if len(self._peers) > MAX_PEERS:
            del self._peers[self._least(wall)]
        return standing

    def _least(self, wall: float) -> PeerId:
        """Who makes room: the one that did nothing for longest of those who are not banned."""
        banned = {ban.peer for ban in self.bans(wall=wall)}
        return next((peer for peer in self._peers if peer not in banned), next(iter(self._peers)))
