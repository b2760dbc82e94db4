"""What is known of the members, on a running node: spread over its links, and kept fresh (decision D9)."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Final

from swarm.ids import PeerId
from swarm.net.pool import Pool
from swarm.protocol.gossip import GossipMachine, GossipStatistics
from swarm.protocol.gossip_events import (
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
from swarm.protocol.gossip_judge import MemberJudge
from swarm.protocol.gossip_store import Known
from swarm.services.context import Context, Service
from swarm.services.revoked import Revoked as RevokedService
from swarm.wire.messages.base import Message
from swarm.wire.messages.gossip import Gossip as GossipMessage
from swarm.wire.records.member import MEMBER_LIFETIME, encode_credentials, member_key
from swarm.wire.records.peer import PeerRecord

NAP_SECONDS: Final = 5.0
"""Timers wait in short naps, because the loop's stand still while a laptop sleeps; and so often it is looked
whether this peer has something else to say of itself."""
MOMENT_SECONDS: Final = 0.01
"""A timer may fire a little early: then it waits for this long, and not again and again for nothing."""


class Gossip(Service):
    """Feeds the machine, which describes this peer as ``pool`` does.

    ``on_use`` is called when the pool's ledger has changed, since another admitter let somebody in.
    """

    def __init__(
        self,
        context: Context,
        pool: Pool,
        *,
        revoked: RevokedService,
        on_use: Callable[[], None],
    ) -> None:
        identity = context.identity
        self._context = context
        self._pool = pool
        self._revoked = revoked
        self._on_use = on_use
        self._soon = asyncio.Event()
        self._due = -float("inf")
        self.on_change: list[Callable[[], None]] = []
        """Called after whatever may have changed what is known."""
        self._machine = GossipMachine(
            identity.key,
            swarm=identity.swarm,
            judge=MemberJudge(pool.reception),
            random=Random(),  # noqa: S311 - spreads news, guards nothing
        )
        revoked.on_news.append(self._on_revocations)
        self._on_revocations()

    def members(self) -> list[Known]:
        """Everybody in the swarm, this peer too, as far as is known here."""
        return self._machine.members(now=self._context.clock.wall())

    def knows(self, peer: PeerId) -> bool:
        """Whether a record of ``peer`` is here, and be it that it has departed."""
        return self._machine.store.get(member_key(peer)) is not None

    def outdates(self, record: PeerRecord) -> bool:
        """Whether what the DHT has of a peer is from before it departed, or too old to mean anything."""
        known = self._machine.store.get(member_key(record.peer))
        age = self._context.clock.wall() - record.sequence / 1000
        return age > MEMBER_LIFETIME or (known is not None and known.record.departed)

    def statistics(self) -> GossipStatistics:
        """What a status page shows."""
        return self._machine.statistics()

    async def run(self) -> None:
        """For ever: do what is due."""
        while True:
            self._feed(self._describe() or Elapsed())
            self._due = self._machine.deadline
            self._soon.clear()
            wait = self._due - self._context.clock.elapsed()
            try:
                async with asyncio.timeout(min(max(wait, MOMENT_SECONDS), NAP_SECONDS)):
                    await self._soon.wait()
            except TimeoutError:
                continue

    def say_goodbye(self) -> None:
        """Tell everybody that this peer departs."""
        self._feed(Leaving())

    def count(self, credentials: bytes) -> None:
        """This node has let somebody in by a counted invite: other admitters are to know."""
        self._feed(Counted(credentials))

    def on_up(self, peer: PeerId) -> None:
        """A link is up."""
        self._feed(Linked(peer))

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link has ended."""
        del reason
        self._feed(Unlinked(peer))

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Take a message of this flow; raises RemoteProtocolError where it should not have been sent."""
        del payload
        if not isinstance(message, GossipMessage):
            return False
        self._feed(Heard(sender, message))
        return True

    def _describe(self) -> Described | None:
        """What this peer's record says; None until it knows where it can be reached."""
        pool, config, identity = self._pool, self._pool.config, self._pool.identity
        if not pool.addresses:
            return None
        return Described(
            role=config.role,
            addresses=pool.addresses,
            capabilities=config.capabilities,
            up=config.up,
            down=config.down,
            credentials=encode_credentials(identity.chain, identity.admission),
        )

    def _on_revocations(self) -> None:
        self._feed(Revoked(self._pool.reception.revocations.digest))

    def _feed(self, event: Event) -> None:
        clock = self._context.clock
        now = Instant(elapsed=clock.elapsed(), wall=clock.wall())
        for action in self._machine.handle(event, now=now):
            match action:
                case Send():
                    self._context.send(action.peer, action.message)
                case NoteUse():
                    if self._pool.reception.ledger.learn(action.member):
                        self._on_use()
                case CompareRevocations():
                    self._revoked.compare(action.peer, action.digest)
                case Blame():
                    self._context.links[action.peer].charge(action.what)
        if self._machine.deadline < self._due:
            self._soon.set()
        for listener in self.on_change:
            listener()
