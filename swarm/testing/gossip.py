"""Many gossip machines on one manual clock, with real keys and certificates, and links that a test makes."""

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

from swarm.identity.admission import admit
from swarm.identity.authority import Authority
from swarm.identity.chain import Member
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS
from swarm.identity.uses import UseLedger
from swarm.ids import PeerId
from swarm.protocol.gossip import GossipMachine
from swarm.protocol.gossip_events import (
    CompareRevocations,
    Described,
    Elapsed,
    Event,
    Heard,
    Instant,
    Linked,
    NoteUse,
    Revoked,
    Send,
    Unlinked,
)
from swarm.protocol.gossip_judge import Claim, MemberJudge, Papers
from swarm.protocol.welcome import Profile, Reception
from swarm.testing.clock import ManualClock
from swarm.testing.hellos import NO_CAPABILITIES
from swarm.wire.frames import HEADER_BYTES
from swarm.wire.messages.gossip import Gossip
from swarm.wire.messages.hello import Capabilities
from swarm.wire.messages.registry import encode_message
from swarm.wire.records.member import encode_credentials

LATENCY_SECONDS: Final = 0.05


@dataclass(slots=True, kw_only=True)
class Weather:
    """How bad the network is: how likely each message is lost or comes twice, and how delays are spread.

    Links do none of this; gossip gets over it all the same. ``spread`` is in seconds.
    """

    loss: float = 0.0
    twice: float = 0.0
    spread: float = 0.0


class _SharedJudge:
    """Judges as one node does, but checks the same bytes once for all nodes of a world."""

    def __init__(
        self, reception: Reception, claims: dict[bytes, Claim], papers: dict[bytes, Papers | None]
    ) -> None:
        self._judge = MemberJudge(reception)
        self._claims = claims
        self._papers = papers

    def claim(self, data: bytes) -> Claim:
        """See ``Judge``."""
        if data not in self._claims:
            self._claims[data] = self._judge.claim(data)
        return self._claims[data]

    def papers(self, data: bytes, *, now: float) -> Papers | None:
        """See ``Judge``."""
        if data not in self._papers:
            self._papers[data] = self._judge.papers(data, now=now)
        papers = self._papers[data]
        return papers if papers is not None and not self.is_out(papers.member) else None

    def is_out(self, member: Member) -> bool:
        """See ``Judge``."""
        return self._judge.is_out(member)


class GossipNode:
    """One member: its machine, what else it knows, and what it has sent."""

    def __init__(self, identity: Identity, *, world: "GossipWorld", seed: int) -> None:
        self.identity = identity
        profile = Profile(role="peer", program="test", capabilities=NO_CAPABILITIES, boot=b"bootboot")
        self.reception = Reception(identity, profile=profile, ledger=UseLedger())
        self.judge = _SharedJudge(self.reception, world.claims, world.papers)
        self.machine = GossipMachine(
            identity.key,
            swarm=identity.swarm,
            judge=self.judge,
            random=Random(seed),  # noqa: S311 - a test's
        )
        self.links: dict[PeerId, GossipNode] = {}
        self.sent: Counter[str] = Counter()
        """Bytes by kind of message, with their frames' headers."""
        self.blamed: list[str] = []
        self.timer = float("inf")
        self.is_here = True

    @property
    def peer(self) -> PeerId:
        """Its id."""
        return self.identity.peer

    def describe(self, address: str, capabilities: Capabilities = NO_CAPABILITIES) -> Described:
        """What its record is to say: that it is reached at ``address``, and has ``capabilities``."""
        return Described(
            role="peer",
            addresses=(address,),
            capabilities=capabilities,
            up=0,
            down=0,
            credentials=encode_credentials(self.identity.chain, self.identity.admission),
        )


@dataclass(order=True, slots=True)
class _Due:
    at: float
    number: int
    node: GossipNode = field(compare=False)
    sender: GossipNode | None = field(compare=False, default=None)
    message: Gossip | None = field(compare=False, default=None)


class GossipWorld:
    """Nodes, links and time. After every event the machine it went to is checked, where ``checked``."""

    def __init__(self, seed: int, *, checked: bool = True) -> None:
        self.random = Random(seed)  # noqa: S311 - a test's
        self.clock = ManualClock()
        self.authority = Authority.create("test", public=False, now=self.clock.wall())
        self.nodes: list[GossipNode] = []
        self.weather = Weather()
        self.claims: dict[bytes, Claim] = {}
        self.papers: dict[bytes, Papers | None] = {}
        self._checked = checked
        self._queue: list[_Due] = []
        self._numbers = itertools.count()

    @property
    def now(self) -> Instant:
        """The present moment."""
        return Instant(elapsed=self.clock.elapsed(), wall=self.clock.wall())

    def invite(self, *, uses: int = 0) -> Invite:
        """An invite with all rights."""
        return self.authority.issue(
            label="test", rights=ALL_RIGHTS, addresses=(), now=self.clock.wall(), uses=uses
        )

    def add(
        self,
        invite: Invite,
        *,
        admitter: GossipNode | None = None,
        capabilities: Capabilities = NO_CAPABILITIES,
    ) -> GossipNode:
        """One more node, a member by ``invite``, with an admission where there is an ``admitter``."""
        now = self.clock.wall()
        identity = Identity.join(invite, key=PrivateKey.generate(), now=now)
        if admitter is not None:
            identity = identity.with_admission(admit(admitter.identity, identity.member, now=now))
        number = len(self.nodes)
        node = GossipNode(identity, world=self, seed=self.random.getrandbits(64))
        self.nodes.append(node)
        self.tell(
            node, node.describe(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:7423", capabilities)
        )
        return node

    def link(self, one: GossipNode, other: GossipNode) -> None:
        """A link comes up."""
        if one is other or other.peer in one.links:
            return
        one.links[other.peer], other.links[one.peer] = other, one
        self.tell(one, Linked(other.peer))
        self.tell(other, Linked(one.peer))

    def cut(self, one: GossipNode, other: GossipNode) -> None:
        """A link ends; what is under way on it is lost."""
        if one.links.pop(other.peer, None) is not None:
            del other.links[one.peer]
            self.tell(one, Unlinked(other.peer))
            self.tell(other, Unlinked(one.peer))

    def silence(self, node: GossipNode) -> None:
        """``node`` is gone, without a word."""
        for other in tuple(node.links.values()):
            self.cut(node, other)
        self.nodes.remove(node)
        node.is_here = False

    def tell(self, node: GossipNode, event: Event) -> None:
        """Give ``node`` an event, and perform what it asks for."""
        for action in node.machine.handle(event, now=self.now):
            match action:
                case Send():
                    self._send(node, action)
                case NoteUse():
                    node.reception.ledger.learn(action.member)
                case CompareRevocations():
                    self.revoke(node.links[action.peer], node.reception.revocations.lists)
                case _:
                    node.blamed.append(action.what)
        if self._checked:
            node.machine.check()
        deadline = node.machine.deadline
        if deadline < node.timer:
            node.timer = deadline
            self._push(_Due(deadline, next(self._numbers), node))

    def revoke(self, node: GossipNode, lists: tuple[bytes, ...]) -> None:
        """``node`` learns revocation lists, and tells its neighbours."""
        known = node.reception.revocations
        if known.learn_all(lists, b""):
            self.tell(node, Revoked(b"".join(known.lists)[-32:]))
            for other in tuple(node.links.values()):
                self.revoke(other, known.lists)

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.clock.elapsed() + seconds
        while self._queue and self._queue[0].at <= until:
            due = heapq.heappop(self._queue)
            self.clock.advance(max(due.at - self.clock.elapsed(), 0.0))
            self._happen(due)
        self.clock.advance(until - self.clock.elapsed())

    def _happen(self, due: _Due) -> None:
        if due.message is None or due.sender is None:
            if due.node.timer == due.at and due.node.is_here:
                due.node.timer = float("inf")
                self.tell(due.node, Elapsed())
        elif due.sender.links.get(due.node.peer) is due.node:
            self.tell(due.node, Heard(due.sender.peer, due.message))

    def _send(self, node: GossipNode, action: Send) -> None:
        node.sent[type(action.message).__name__] += HEADER_BYTES + len(encode_message(action.message))
        weather = self.weather
        if self.random.random() < weather.loss:
            return
        for _ in range(2 if self.random.random() < weather.twice else 1):
            at = self.clock.elapsed() + LATENCY_SECONDS + self.random.uniform(0.0, weather.spread)
            self._push(_Due(at, next(self._numbers), node.links[action.peer], node, action.message))

    def _push(self, due: _Due) -> None:
        heapq.heappush(self._queue, due)


def known_to(node: GossipNode) -> dict[PeerId, int]:
    """The version of each member that ``node`` knows, those that have departed too."""
    return {known.peer: known.version for known in node.machine.store}
