"""Gossip: how every node of a swarm knows all its members, linked to a few of them (decision D9).

What is new is told in summaries, gathered for a few seconds, to ``FANOUT`` neighbours; who lacks it asks for
it. So a record crosses to each node about once, and costs an entry of a summary otherwise. Whom that misses
(the probability falls exponentially with the fan-out: Kermarrec, Massoulie and Ganesh, IEEE TPDS 14 (3),
2003), and whoever was away, catches up by comparing digests with one random neighbour now and then, and with
each new one (anti-entropy: Demers et al., PODC 1987).

Each peer signs its record anew now and then; one that is not heard of is forgotten when its record expires,
one that says that it departs at once. Only what was asked for is taken, so a node sets the pace itself at
which it is told of others.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, assert_never

from swarm.errors import LocalError, RemoteProtocolError
from swarm.identity.keys import PrivateKey
from swarm.ids import SHORT_ID_BYTES, PeerId, SwarmId
from swarm.protocol.gossip_events import (
    Action,
    Blame,
    CompareRevocations,
    Counted,
    Described,
    Elapsed,
    Event,
    Heard,
    Instant,
    Leaving,
    Linked,
    NoteUse,
    Revoked,
    Send,
    Unlinked,
)
from swarm.protocol.gossip_judge import Claim, Judge, Papers
from swarm.protocol.gossip_neighbour import Allowances, Neighbour
from swarm.protocol.gossip_news import News
from swarm.protocol.gossip_packing import answer, bits_of, differing, entries, pieces, summary
from swarm.protocol.gossip_self import OwnRecord
from swarm.protocol.gossip_store import GossipStore, Known
from swarm.protocol.lots import Lots
from swarm.wire.limits import MAX_GOSSIP_BITS
from swarm.wire.messages.gossip import (
    ENTRY_BYTES,
    GossipAnswer,
    GossipDeparture,
    GossipDigest,
    GossipRequest,
    GossipSummary,
)
from swarm.wire.records.member import credentials_name, is_datable

FANOUT: Final = 4
"""Neighbours that news is told to: 98% of a large swarm hear of it, the others by comparing."""
COMPARE_SECONDS: Final = 60.0
"""Between two comparisons that a node begins."""
SWEEP_SECONDS: Final = 15.0
"""Between two looks for what has expired."""
MEMBERS_PER_BUCKET: Final = 4
"""About so many are in each bucket of a digest: a member that differs costs their entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GossipStatistics:
    """What a status page shows. ``refused`` counts what was asked for and did not count."""

    members: int
    departed: int
    neighbours: int
    refused: int


class GossipMachine:
    """What one node knows of the members of its swarm. ``handle`` is the only mutator."""

    def __init__(
        self,
        key: PrivateKey,
        *,
        swarm: SwarmId,
        judge: Judge,
        random: Lots,
        store: GossipStore | None = None,
    ) -> None:
        self.peer = key.peer
        self.store = store if store is not None else GossipStore()
        self._judge = judge
        self._random = random
        self._own = OwnRecord(key, swarm=swarm, random=random)
        self._revocations = b""
        self._neighbours: dict[PeerId, Neighbour] = {}
        self._allowances = Allowances()
        self._news = News()
        self._sweep_at = self._compare_at = -float("inf")
        self._refused = 0

    @property
    def deadline(self) -> float:
        """When :class:`Elapsed` is due (elapsed)."""
        answers = min((neighbour.due for neighbour in self._neighbours.values()), default=float("inf"))
        return min(self._own.due, self._news.tell_at, self._sweep_at, self._compare_at, answers)

    def members(self, *, now: float) -> list[Known]:
        """Who is in the swarm at ``now`` (wall), this peer too: no record that expired or says goodbye."""
        return [
            known for known in self.store if not known.record.departed and is_datable(known.version, now=now)
        ]

    def statistics(self) -> GossipStatistics:
        """What a status page shows."""
        departed = sum(known.record.departed for known in self.store)
        return GossipStatistics(
            members=len(self.store) - departed,
            departed=departed,
            neighbours=len(self._neighbours),
            refused=self._refused,
        )

    def __str__(self) -> str:
        return f"{len(self.store)} members known, {len(self._neighbours)} neighbours"

    def check(self) -> None:
        """Raise LocalError where an invariant is broken."""
        self.store.check()
        self._news.check()
        own = self.store.get(self._own.key)
        if own is not None and own.record.sequence > self._own.sequence:
            raise LocalError("gossip: our own record is not one that we signed")
        asked: set[bytes] = set()
        for neighbour in self._neighbours.values():
            if bool(neighbour.asked) != (neighbour.due < float("inf")):
                raise LocalError("gossip: an answer is awaited without a deadline")
            if asked & neighbour.asked.keys():
                raise LocalError("gossip: two neighbours are asked for the same")
            asked |= neighbour.asked.keys()

    def handle(self, event: Event, *, now: Instant) -> list[Action]:
        """Take one event; returns what to do, in order.

        Raises RemoteProtocolError where a message is one that its sender should not have sent.
        """
        match event:
            case Described():
                self._own.describe(event, now=now.elapsed)
                return self._elapsed(now)
            case Linked():
                allowance = self._allowances.of(event.peer, now=now.elapsed)
                self._neighbours[event.peer] = Neighbour(allowance=allowance)
                return self._compare(event.peer) if self.peer < event.peer else []
            case Unlinked():
                self._neighbours.pop(event.peer, None)
                return self._ask(now)
            case Heard():
                return self._heard(event, now)
            case Counted():
                papers = self._judge.papers(event.credentials, now=now.wall)
                if papers is not None:
                    self._count(papers, now)
                return []
            case Revoked():
                self._revocations = event.digest
                self._news.discard(known.key for known in self.store.drop(self._judge.is_out))
                return []
            case Leaving():
                return self._leave(now)
            case Elapsed():
                return self._elapsed(now)
            case _:
                assert_never(event)

    def _heard(self, event: Heard, now: Instant) -> list[Action]:
        neighbour = self._neighbours.get(event.peer)
        if neighbour is None:
            return []
        match event.message:
            case GossipDigest():
                return self._digested(event.peer, neighbour, event.message, now)
            case GossipSummary():
                return self._summarised(event.peer, neighbour, event.message, now)
            case GossipRequest():
                return self._requested(event.peer, neighbour, event.message, now)
            case GossipAnswer():
                return self._answered(event.peer, neighbour, event.message, now)
            case GossipDeparture():
                return self._departed(event.peer, event.message, now)
            case _:
                assert_never(event.message)

    # Comparing, and asking for what differs.

    def _compare(self, peer: PeerId) -> list[Action]:
        bits = min((len(self.store) // MEMBERS_PER_BUCKET).bit_length(), MAX_GOSSIP_BITS)
        self._neighbours[peer].compared = bits
        return [Send(peer, GossipDigest(buckets=self.store.digest(bits), revocations=self._revocations))]

    def _digested(
        self, peer: PeerId, neighbour: Neighbour, message: GossipDigest, now: Instant
    ) -> list[Action]:
        bits = bits_of(message.buckets)
        if neighbour.allowance.digests.add(now=now.elapsed):
            return [Blame(peer, "it compares without end")]
        differs = message.revocations != self._revocations
        actions: list[Action] = [CompareRevocations(peer, message.revocations)] if differs else []
        asking = differing(self.store.digest(bits), message.buckets)
        if asking:
            versions, names = self.store.within(frozenset(asking), bits)
            actions.append(Send(peer, summary(versions, names, bits=bits, asking=asking)))
        return actions

    def _summarised(
        self, peer: PeerId, neighbour: Neighbour, message: GossipSummary, now: Instant
    ) -> list[Action]:
        named = len(message.records) // ENTRY_BYTES + len(message.credentials) // SHORT_ID_BYTES
        if neighbour.allowance.entries.add(named + 1, now=now.elapsed):
            return [Blame(peer, "it names more than there is")]
        versions, names = entries(message.records), pieces(message.credentials)
        actions: list[Action] = []
        if message.asking and neighbour.compared == message.bits:
            neighbour.compared = None
            actions += self._return(peer, message, versions, frozenset(names))
        for key, version in versions.items():
            if self._is_new(key, version) and is_datable(version, now=now.wall):
                neighbour.offer(key, version)
        for name in names:
            if self.store.papers(name) is None:
                neighbour.name(name)
        return actions + self._ask(now, only=peer)

    def _return(
        self, peer: PeerId, message: GossipSummary, theirs: Mapping[bytes, int], names: frozenset[bytes]
    ) -> list[Action]:
        """What the other side lacks in the buckets that it has said everything of."""
        versions, held = self.store.within(frozenset(message.asking), message.bits)
        lacked = {key: version for key, version in versions.items() if theirs.get(key, -1) < version}
        unnamed = [name for name in held if name not in names]
        return [Send(peer, summary(lacked, unnamed))] if lacked or unnamed else []

    def _is_new(self, key: bytes, version: int) -> bool:
        held = self.store.get(key)
        return held is None or held.version < version

    def _ask(self, now: Instant, *, only: PeerId | None = None) -> list[Action]:
        """Ask neighbours for what they offer; nobody for what another is asked for."""
        actions: list[Action] = []
        for peer, neighbour in self._neighbours.items():
            if neighbour.asked or not neighbour.offers or only not in {None, peer}:
                continue
            self._catch_up(peer, neighbour, now)
            busy = frozenset(key for other in self._neighbours.values() for key in other.asked)
            request = neighbour.ask(is_new=self._is_new, busy=busy, now=now.elapsed)
            if request is not None:
                actions.append(Send(peer, request))
        return actions

    def _catch_up(self, peer: PeerId, neighbour: Neighbour, now: Instant) -> None:
        """Take records whose credentials another neighbour has given meanwhile."""
        for name in list(neighbour.names):
            papers = self.store.papers(name)
            if papers is not None:
                del neighbour.names[name]
                claim = neighbour.waiting.pop(name, None)
                if claim is not None:
                    self._take(claim, papers, peer, now)

    def _requested(
        self, peer: PeerId, neighbour: Neighbour, message: GossipRequest, now: Instant
    ) -> list[Action]:
        held = [self.store.get(key) for key in pieces(message.records)]
        papers = [self.store.papers(name) for name in pieces(message.credentials)]
        reply = answer(
            [known.data for known in held if known is not None],
            [found.data for found in papers if found is not None],
        )
        parts = message.records, message.credentials, *reply.records, *reply.credentials
        if neighbour.allowance.answers.add(sum(map(len, parts)) + 1, now=now.elapsed):
            return [Send(peer, answer((), ())), Blame(peer, "it asks for more than there is")]
        return [Send(peer, reply)]

    def _answered(
        self, peer: PeerId, neighbour: Neighbour, message: GossipAnswer, now: Instant
    ) -> list[Action]:
        """Take what was asked for, and ask for more."""
        if not neighbour.awaits:
            return [Blame(peer, "it sent an answer that nobody asked for")]
        actions: list[Action] = []
        for data in message.credentials:
            name = credentials_name(data)
            if not neighbour.came(name):
                return [Blame(peer, "it sent credentials that nobody asked for")]
            papers = self._judge.papers(data, now=now.wall)
            claim = neighbour.waiting.pop(name, None)
            if papers is None:
                self._refused += 1
                continue
            if claim is not None:
                self._take(claim, papers, peer, now)
            if self._count(papers, now):
                actions.append(NoteUse(papers.member))
        for data in message.records:
            claim = self._judge.claim(data)
            if not neighbour.came(claim.key):
                return [Blame(peer, "it sent a record that nobody asked for")]
            papers = self.store.papers(claim.record.credentials)
            if papers is not None:
                self._take(claim, papers, peer, now)
            else:
                neighbour.waiting[claim.record.credentials] = claim
                neighbour.name(claim.record.credentials)
        neighbour.answered(some=bool(message.records or message.credentials))
        return actions + self._ask(now)

    def _departed(self, peer: PeerId, message: GossipDeparture, now: Instant) -> list[Action]:
        if self._neighbours[peer].allowance.departures.add(now=now.elapsed):
            return [Blame(peer, "it departs without end")]
        claim = self._judge.claim(message.record)
        if claim.record.peer != peer or not claim.record.departed:
            raise RemoteProtocolError("a departure that is not its sender's own")
        papers = self.store.papers(claim.record.credentials)
        if papers is not None:
            self._take(claim, papers, peer, now)
        return []

    # What is learnt.

    def _take(self, claim: Claim, papers: Papers, source: PeerId, now: Instant) -> None:
        """Keep a record, if it counts and is newer than what is there of its peer."""
        if not self._is_new(claim.key, claim.version):
            return
        counts = papers.member.peer == claim.record.peer and not self._judge.is_out(papers.member)
        if not counts or not is_datable(claim.version, now=now.wall):
            self._refused += 1
        elif claim.key == self._own.key:
            self._own.outbid(claim.record, now=now)
        else:
            self._keep(Known.of(claim, papers), source, now)

    def _keep(self, known: Known, source: PeerId | None, now: Instant) -> None:
        if self.store.put(known):
            self._news.add(known, source, now=now.elapsed)
        else:
            self._refused += 1

    def _count(self, papers: Papers, now: Instant) -> bool:
        if not papers.counts or not self.store.count(papers):
            return False
        self._news.add_name(papers.name, now=now.elapsed)
        return True

    # This peer, and time.

    def _sign(self, now: Instant) -> Known | None:
        """Our own record, signed anew; None where we have nothing to say, or do not count ourselves."""
        said = self._own.description
        papers = None if said is None else self._judge.papers(said.credentials, now=now.wall)
        self._own.postpone(now=now.elapsed)
        if said is None or papers is None:
            return None
        known = self._own.sign(said, papers, now=now)
        self._keep(known, None, now)
        self._count(papers, now)
        return known

    def _leave(self, now: Instant) -> list[Action]:
        self._own.leave()
        known = self._sign(now)
        if known is None:
            return []
        return [Send(peer, GossipDeparture(record=known.data)) for peer in self._neighbours]

    def _elapsed(self, now: Instant) -> list[Action]:
        actions: list[Action] = []
        if self._own.due <= now.elapsed:
            self._sign(now)
        if self._sweep_at <= now.elapsed:
            self._sweep_at = now.elapsed + SWEEP_SECONDS
            self._news.discard(known.key for known in self.store.expire(now=now.wall))
        if self._news.tell_at <= now.elapsed:
            actions += self._tell(now)
        if self._compare_at <= now.elapsed:
            self._compare_at = now.elapsed + COMPARE_SECONDS * self._random.uniform(0.5, 1.5)
            if self._neighbours:
                actions += self._compare(self._random.choice(list(self._neighbours)))
        late = [neighbour for neighbour in self._neighbours.values() if neighbour.due <= now.elapsed]
        for neighbour in late:
            neighbour.give_up()
        return actions + self._ask(now) if late else actions

    def _tell(self, now: Instant) -> list[Action]:
        """Tell a few neighbours what is news, but nobody what it told us itself."""
        keys, names = self._news.take(now=now.elapsed)
        told = [known for key in keys if (known := self.store.get(key)) is not None]
        actions: list[Action] = []
        for peer in self._random.sample(list(self._neighbours), min(FANOUT, len(self._neighbours))):
            versions = {known.key: known.version for known in told if keys[known.key] != peer}
            if versions or names:
                actions.append(Send(peer, summary(versions, names)))
        return actions
