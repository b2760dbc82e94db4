"""One neighbour of the gossip: what it says that it has, what it was asked for, and what it may cost us."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from swarm.ids import PeerId
from swarm.protocol.bucket import Bucket
from swarm.protocol.gossip_judge import Claim
from swarm.wire.limits import KIB, MAX_GOSSIP_REQUEST, MIB
from swarm.wire.messages.gossip import GossipRequest

MAX_OFFERED: Final = 8192
"""Records and credentials that are remembered as on offer from one neighbour; more are passed over."""
MAX_ALLOWANCES: Final = 1024
"""Peers whose allowance is remembered: four times the links that a node keeps."""
ANSWER_SECONDS: Final = 30.0
"""How long an answer may take; then what was asked for is asked of whoever names it next."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """What one peer may cost this node, on all its links one after the other."""

    digests: Bucket
    """Digests that are compared."""
    departures: Bucket
    """Departures whose signatures are checked."""
    entries: Bucket
    """Entries of summaries that are looked at."""
    asked: Bucket
    """Records and credentials that are asked of it, and checked: a millisecond or two each."""
    answers: Bucket
    """Bytes of its requests, and of the answers to them."""

    @classmethod
    def new(cls, *, now: float) -> "Allowance":
        """That of a peer that was never here.

        It may begin a comparison each five seconds and depart as often, say what a node can remember, four
        times over, and then 500 entries a second, have as much checked as a newcomer needs, twice, and then
        32 a second, and is given what a newcomer needs, thrice, and then 64 KiB a second.
        """
        return cls(
            digests=Bucket(most=4, a_second=0.2, now=now),
            departures=Bucket(most=4, a_second=0.2, now=now),
            entries=Bucket(most=4 * MAX_OFFERED, a_second=500, now=now),
            asked=Bucket(most=2 * MAX_OFFERED, a_second=32, now=now),
            answers=Bucket(most=32 * MIB, a_second=64 * KIB, now=now),
        )


class Allowances:
    """Those of the peers that were linked last: calling again is no way to a new one."""

    def __init__(self) -> None:
        self._of: dict[PeerId, Allowance] = {}

    def of(self, peer: PeerId, *, now: float) -> Allowance:
        """The allowance of ``peer``, with which a link has come up."""
        allowance = self._of.pop(peer, None) or Allowance.new(now=now)
        self._of[peer] = allowance
        if len(self._of) > MAX_ALLOWANCES:
            del self._of[next(iter(self._of))]
        return allowance


@dataclass(slots=True, kw_only=True)
class Neighbour:
    """What is known of one link."""

    allowance: Allowance
    compared: int | None = None
    """Bits of the digest that was sent to it and is not answered yet."""
    records: dict[bytes, int] = field(default_factory=dict)
    """On offer: key and version."""
    names: dict[bytes, None] = field(default_factory=dict)
    """Credentials on offer, or named by a record that it gave."""
    waiting: dict[bytes, Claim] = field(default_factory=dict)
    """Records that it gave, by the name of the credentials that they lack."""
    asked: dict[bytes, int] = field(default_factory=dict)
    """Keys that an answer is awaited for, and names, at version 0."""
    late: frozenset[bytes] = frozenset()
    """What was asked for and is awaited no more; it may still come."""
    due: float = float("inf")
    """When the answer is given up."""

    @property
    def offers(self) -> bool:
        """Whether it has anything for us."""
        return bool(self.records or self.names)

    @property
    def awaits(self) -> bool:
        """Whether an answer of it may be on its way."""
        return bool(self.asked or self.late)

    def offer(self, key: bytes, version: int) -> None:
        """It has this version of a record."""
        if key in self.records or len(self.records) < MAX_OFFERED:
            self.records[key] = max(version, self.records.get(key, 0))

    def name(self, name: bytes) -> None:
        """It has these credentials."""
        if len(self.names) < MAX_OFFERED:
            self.names[name] = None

    def ask(
        self, *, is_new: Callable[[bytes, int], bool], busy: frozenset[bytes], now: float
    ) -> GossipRequest | None:
        """The next request, where no answer is on its way; credentials first, for records wait for them.

        What is not ``is_new`` any more is not asked for; what is ``busy``, asked of others, is so later, and
        so is what goes beyond the allowance.
        """
        if self.asked or self.allowance.asked.wait(MAX_GOSSIP_REQUEST, now=now):
            return None
        self.records = {key: version for key, version in self.records.items() if is_new(key, version)}
        names = [name for name in self.names if name not in busy][:MAX_GOSSIP_REQUEST]
        keys = [key for key in self.records if key not in busy][: 0 if names else MAX_GOSSIP_REQUEST]
        if not names and not keys:
            return None
        self.allowance.asked.add(len(names) + len(keys), now=now)
        self.asked = dict.fromkeys(names, 0) | {key: self.records.pop(key) for key in keys}
        for name in names:
            del self.names[name]
        self.due = now + ANSWER_SECONDS
        return GossipRequest(records=b"".join(keys), credentials=b"".join(names))

    def came(self, key: bytes) -> bool:
        """A record or credentials came; whether they were asked for."""
        was_asked = self.asked.pop(key, None) is not None
        was_late = key in self.late
        self.late -= {key}
        return was_asked or was_late

    def answered(self, *, some: bool) -> None:
        """An answer has been taken; where it had ``some`` of what was asked, the rest is asked for again."""
        if not self.asked:
            self.late = frozenset()
        rest, self.asked, self.due = self.asked, {}, float("inf")
        for key, version in rest.items():
            if not some:
                self.waiting.pop(key, None)
            elif version:
                self.records.setdefault(key, version)
            else:
                self.names[key] = None

    def give_up(self) -> None:
        """The answer takes too long."""
        self.late = frozenset(self.asked)
        self.answered(some=False)
