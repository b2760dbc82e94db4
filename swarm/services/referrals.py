"""Referring callers to other peers when all links are taken: they are let in, told of others, and sent on.

So a newcomer has its admission, the revocations and the DHT key all the same, and enters the swarm through
those it was told of. Where an invite has more links than the newcomer's, one of its callers goes instead.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from random import Random
from typing import Final

from swarm.errors import LinkLostError
from swarm.ids import PeerId, short
from swarm.log import get_log
from swarm.net.link import Link
from swarm.protocol.session_events import Close
from swarm.services.context import Context, Service
from swarm.wire.frames import CloseCode
from swarm.wire.limits import MAX_ADDRESSES
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Referral

VISITORS: Final = 16
"""Callers beyond the limit that are told of others at the same time; more are turned away."""

_log = get_log(__name__)


class Referrals(Service):
    """Keeps a node at its limit of links; ``referred`` hears when another node sends this one on."""

    def __init__(
        self, context: Context, *, limit: int, referred: Callable[[PeerId, Sequence[str]], None]
    ) -> None:
        self._context = context
        self._limit = limit
        self._referred = referred
        self._told: set[PeerId] = set()
        """Who has sent this node on, on the present link."""
        self._random = Random()  # noqa: S311 - spreads newcomers, guards nothing

    def on_up(self, peer: PeerId) -> None:
        """A link is up: one too many, and somebody has to go."""
        links = self._context.links
        if len(links) > self._limit and not links[peer].dialed:
            surplus = surplus_of(links.values(), links[peer])
            self._context.tasks.create_task(self._refer(surplus), name=f"refer {short(surplus.peer)}")

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link has ended."""
        self._told.discard(peer)

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Another node has no room for us, and says who may: once, and only one that was called."""
        if not isinstance(message, Referral):
            return False
        link = self._context.links[sender]
        if sender in self._told or not link.dialed:
            link.charge("it sent on somebody who did not ask for that")
            return True
        self._told.add(sender)
        self._referred(sender, message.addresses)
        return True

    async def _refer(self, link: Link) -> None:
        others = [other for other in self._context.links.values() if other.peer != link.peer]
        known = [_place(other) for other in others if _place(other)]
        addresses = tuple(self._random.sample(known, min(len(known), MAX_ADDRESSES)))
        _log.debug("referred to others", peer=link.peer, addresses=len(addresses))
        with suppress(LinkLostError):
            await link.post(Referral(addresses=addresses)).wait()
        sentence = f"busy: I have {self._limit} links, and that is my limit; I told you of other peers"
        link.feed(Close(CloseCode.LEAVING, sentence))


def surplus_of(links: Collection[Link], newcomer: Link) -> Link:
    """Who of ``links`` goes: the newcomer, or the newest caller of an invite that has more of them."""
    callers = [link for link in links if not link.dialed and link is not newcomer]
    counts = Counter(link.member.invite for link in callers)
    invite, count = max(counts.items(), key=lambda item: item[1], default=("", 0))
    if count <= counts[newcomer.member.invite] + 1:
        return newcomer
    of_invite = [link for link in callers if link.member.invite == invite]
    return max(of_invite, key=lambda link: link.statistics().since)


def _place(link: Link) -> str:
    """Where the other side can be called: where it was, or where it says; empty where it does not say."""
    return link.address if link.dialed else next(iter(link.hello.addresses), "")
