"""This peer's own record: what it says, under which date, and when it is signed again."""

from typing import Final

from swarm.identity.keys import PrivateKey
from swarm.ids import SwarmId
from swarm.protocol.gossip_events import Described, Instant
from swarm.protocol.gossip_judge import Claim, Papers
from swarm.protocol.gossip_store import Known
from swarm.protocol.lots import Lots
from swarm.wire.records.member import (
    MemberRecord,
    credentials_name,
    member_key,
    sign_member,
)
from swarm.wire.records.peer import MAX_RECORD_SKEW

HEARTBEAT_SECONDS: Final = 300.0
"""After so long a peer signs its record again: three times in its life."""
REPEAT_SECONDS: Final = 10.0
"""News of one peer is told no more often than this: one that signs without end costs others little."""


class OwnRecord:
    """Signs for ``key``. ``due`` (elapsed) is when it is to be signed next."""

    def __init__(self, key: PrivateKey, *, swarm: SwarmId, random: Lots) -> None:
        self.key = member_key(key.peer)
        self.due = float("inf")
        self.description: Described | None = None
        self._key = key
        self._swarm = swarm
        self._random = random
        self._sequence = 0
        self._signed = -float("inf")
        self._left = False
        self._said: Described | None = None
        """The description in the record that was signed last."""

    @property
    def sequence(self) -> int:
        """Of the record that was signed last; 0 before the first."""
        return self._sequence

    def describe(self, description: Described, *, now: float) -> None:
        """Say this from now on; what changes again and again is told at intervals."""
        if description != self.description and not self._left:
            self.description = description
            self.due = min(self.due, max(now, self._signed + REPEAT_SECONDS))

    def outbid(self, record: MemberRecord, *, now: Instant) -> None:
        """A record of ours from an earlier run, whose clock was ahead, is still about: sign a newer one."""
        if record.sequence >= self._sequence and not self._left:
            self._sequence = record.sequence
            self.due = now.elapsed

    def leave(self) -> None:
        """Sign no more but that we depart, with the credentials that others know."""
        self.description, self.due, self._left = self._said, float("inf"), True

    def postpone(self, *, now: float) -> None:
        """It is signed, or cannot be: do so again after a while."""
        if not self._left:
            self.due = now + HEARTBEAT_SECONDS * self._random.uniform(0.9, 1.1)

    def sign(self, said: Described, papers: Papers, *, now: Instant) -> Known:
        """The record, dated later than all before it that others may have."""
        date = int(now.wall * 1000)
        if self._sequence <= date + MAX_RECORD_SKEW * 1000:
            date = max(date, self._sequence + 1)
        self._sequence, self._signed, self._said = date, now.elapsed, said
        record = MemberRecord(
            swarm=self._swarm,
            public_key=self._key.public,
            sequence=date,
            departed=self._left,
            role=said.role,
            addresses=said.addresses,
            capabilities=said.capabilities,
            up=said.up,
            down=said.down,
            credentials=credentials_name(said.credentials),
        )
        return Known.of(Claim.of(record, sign_member(self._key, record)), papers)
