"""What a node has learnt of members by gossip: the newest record of each, and credentials, in bounded number.

A record that says that its peer has departed is kept like any other until it expires. Older records of that
peer have expired by then, so no late copy revives it; a newer record does.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from swarm.errors import LocalError
from swarm.identity.admission import GRACE_SECONDS
from swarm.identity.chain import Member
from swarm.identity.terms import InviteId
from swarm.ids import PeerId
from swarm.protocol.gossip_judge import Claim, Papers
from swarm.wire.messages.gossip import BUCKET_BYTES
from swarm.wire.records.member import VERSION_BYTES, MemberRecord, is_datable

MAX_MEMBERS: Final = 4096
"""Records kept: four times the swarm that this is made for."""
MAX_COUNTED: Final = 4096
"""Credentials kept of those who came by counted invites, for as long as the invite can be used."""
EXCESS_USES: Final = 4
"""Members beyond the count of an invite that are kept on record: admitters who could not see each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """One member as its newest record has it."""

    key: bytes
    version: int
    record: MemberRecord
    data: bytes = field(repr=False)
    papers: Papers

    @classmethod
    def of(cls, claim: Claim, papers: Papers) -> "Known":
        """The member that made ``claim``, as ``papers`` prove."""
        return cls(key=claim.key, version=claim.version, record=claim.record, data=claim.data, papers=papers)

    @property
    def peer(self) -> PeerId:
        """Who it is."""
        return self.papers.member.peer

    @property
    def member(self) -> Member:
        """What its certificates prove."""
        return self.papers.member


class GossipStore:
    """Records by key, and credentials by name."""

    def __init__(self, *, limit: int = MAX_MEMBERS, counted_limit: int = MAX_COUNTED) -> None:
        self.limit = limit
        self.counted_limit = counted_limit
        self._known: dict[bytes, Known] = {}
        self._named: dict[bytes, Papers] = {}
        """Of the records that are known."""
        self._counted: dict[bytes, Papers] = {}
        self._uses: dict[tuple[PeerId, InviteId], bytes] = {}
        """Which of the counted credentials show that a peer came by an invite."""
        self._digests: dict[int, bytes] = {}
        """By bits, for as long as nothing changes: links often come up many at a time."""

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Known]:
        return iter(self._known.values())

    def get(self, key: bytes) -> Known | None:
        """The newest record of the peer with this key."""
        return self._known.get(key)

    def papers(self, name: bytes) -> Papers | None:
        """Credentials, whatever they are kept for."""
        return self._named.get(name) or self._counted.get(name)

    @property
    def counted(self) -> Iterable[bytes]:
        """Names of the credentials that show which uses of counted invites are taken."""
        return self._counted.keys()

    def put(self, known: Known) -> bool:
        """Keep a record that is newer than what there is of its peer; False where there is no room for it.

        Where all places are taken, the one of the invite with the most goes that was admitted last: one
        invite, in however many hands, does not shut out the others, and nodes that are all full keep the
        same.
        """
        old = self._known.get(known.key)
        if old is None and len(self._known) >= self.limit and not self._make_room(known):
            return False
        if old is not None:
            self._forget(old)
        self._digests.clear()
        self._known[known.key] = known
        self._named[known.papers.name] = known.papers
        return True

    def _make_room(self, newcomer: Known) -> bool:
        everybody = [*self, newcomer]
        counts = Counter(known.member.invite for known in everybody)
        invite = max(counts, key=lambda one: (counts[one], one))
        last = max((one for one in everybody if one.member.invite == invite), key=_rank)
        if last is newcomer:
            return False
        self._forget(last)
        return True

    def _forget(self, known: Known) -> None:
        self._digests.clear()
        del self._known[known.key]
        self._named.pop(known.papers.name, None)

    def count(self, papers: Papers) -> bool:
        """Keep credentials that show a use of a counted invite; True where that is news.

        Of several that show the same use, those of the lowest name stay, at every node.
        """
        member = papers.member
        use = member.peer, member.invite
        held = self._uses.get(use)
        if held is not None:
            if papers.name < held:
                self._digests.clear()
                del self._counted[held]
                self._uses[use], self._counted[papers.name] = papers.name, papers
            return False
        taken = sum(invite == member.invite for _, invite in self._uses)
        if taken >= member.uses + EXCESS_USES or len(self._counted) >= self.counted_limit:
            return False
        self._digests.clear()
        self._uses[use], self._counted[papers.name] = papers.name, papers
        return True

    def expire(self, *, now: float) -> list[Known]:
        """Drop what does not count any more at ``now`` (wall); returns the records."""
        gone = [known for known in self if not is_datable(known.version, now=now)]
        for known in gone:
            self._forget(known)
        self._uncount(lambda member: 0 < member.join_by < now - GRACE_SECONDS)
        return gone

    def drop(self, is_out: Callable[[Member], bool]) -> list[Known]:
        """Drop all that is of members who were revoked; returns their records."""
        gone = [known for known in self if is_out(known.member)]
        for known in gone:
            self._forget(known)
        self._uncount(is_out)
        return gone

    def _uncount(self, is_over: Callable[[Member], bool]) -> None:
        for use, name in [*self._uses.items()]:
            if is_over(self._counted[name].member):
                self._digests.clear()
                del self._uses[use], self._counted[name]

    # Comparing.

    def digest(self, bits: int) -> bytes:
        """One digest for each of 2^``bits`` buckets of what is here."""
        if bits not in self._digests:
            self._digests[bits] = self._digest(bits)
        return self._digests[bits]

    def _digest(self, bits: int) -> bytes:
        buckets: list[list[bytes]] = [[] for _ in range(1 << bits)]
        for key, known in self._known.items():
            buckets[bucket_of(key, bits)].append(key + known.version.to_bytes(VERSION_BYTES, "big"))
        for name in self._counted:
            buckets[bucket_of(name, bits)].append(name)
        return b"".join(
            hashlib.blake2b(b"".join(sorted(entries)), digest_size=BUCKET_BYTES).digest()
            for entries in buckets
        )

    def within(self, chosen: frozenset[int], bits: int) -> tuple[dict[bytes, int], list[bytes]]:
        """The versions by key, and the names of counted credentials, in these of 2^``bits`` buckets."""
        versions = {
            key: known.version for key, known in self._known.items() if bucket_of(key, bits) in chosen
        }
        return versions, [name for name in self._counted if bucket_of(name, bits) in chosen]

    def check(self) -> None:
        """Raise LocalError where an invariant is broken."""
        if len(self._known) > self.limit or len(self._counted) > self.counted_limit:
            raise LocalError("gossip: more is kept than there may be")
        if {known.papers.name for known in self} != self._named.keys():
            raise LocalError("gossip: credentials are kept that no record names, or the other way round")
        if sorted(self._uses.values()) != sorted(self._counted):
            raise LocalError("gossip: a use of an invite has no credentials")
        if any(known.record.peer != known.peer for known in self):
            raise LocalError("gossip: a record is kept with another peer's credentials")


def _rank(known: Known) -> tuple[float, bytes]:
    """Who stays before whom: those admitted first, and of equals the same at every node."""
    return known.papers.admitted, known.key


def bucket_of(key: bytes, bits: int) -> int:
    """The bucket, of 2^``bits``, of a key or name."""
    return int.from_bytes(key[:2], "big") >> (16 - bits)
