"""Who was revoked, on a running node: lists come in, links end, the DHT key changes (decisions D1, D2).

A list reaches every node over the links that are up, each telling the next; a node that was away hears of it
in its next hello.
"""

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from swarm.errors import FailureError, RemoteRefusalError
from swarm.identity.authority import REVOCATIONS_FILE as AUTHORITY_REVOCATIONS
from swarm.identity.membership import Identity
from swarm.identity.revocations import Revocations
from swarm.ids import PeerId
from swarm.log import get_log
from swarm.net.link import Link
from swarm.protocol.session_events import Close
from swarm.protocol.welcome import Epoch, Reception
from swarm.services.context import Context, Service
from swarm.services.home import authority_folder
from swarm.services.status.source import RevocationReport
from swarm.wire.frames import CloseCode
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import RevocationNews

REVOCATIONS_FILE: Final = "revocations.bin"

CATCH_UP_SECONDS: Final = 5.0
"""How long a node that has just joined waits for the lists that others' hellos speak of."""

_log = get_log(__name__)


def adopt_revocations(base: Path, folder: Path, identity: Identity) -> None:
    """Take over into the home ``folder`` what an authority of the same swarm under ``base`` has revoked.

    So a revocation that nobody could be told of when it was made is told by the next node that starts here.
    Raises FailureError where a file is damaged or cannot be written.
    """
    source = authority_folder(base, identity.name) / AUTHORITY_REVOCATIONS
    if not source.exists():
        return
    try:
        issued = Revocations.load(source, authority=identity.authority)
    except FailureError:
        _log.warning("the revocations of another swarm with this name are left alone", file=str(source))
        return
    known = Revocations.load(folder / REVOCATIONS_FILE, authority=identity.authority)
    if known.learn_all(issued.lists, issued.epoch_key):
        known.save(folder / REVOCATIONS_FILE)


class Revoked(Service):
    """Keeps ``reception``'s revocations up to date in the swarm, on disk and in the DHT.

    ``set_epoch`` is called with every new DHT key, ``on_news`` after every new list.
    """

    def __init__(
        self, context: Context, reception: Reception, folder: Path, *, set_epoch: Callable[[Epoch], None]
    ) -> None:
        self._context = context
        self._reception = reception
        self._path = folder / REVOCATIONS_FILE
        self._set_epoch = set_epoch
        self._changed = asyncio.Event()
        self._told: dict[PeerId, bytes] = {}
        """By digest, what was told over each link."""
        self.on_news: list[Callable[[], None]] = []

    def on_up(self, peer: PeerId) -> None:
        """A link is up: tell the other side what its hello did not know."""
        link = self._context.links[peer]
        news = self._reception.news_for(link.hello, link.member)
        if news is not None:
            self._told[peer] = self._reception.revocations.digest
            link.post(news)

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link has ended."""
        del reason
        self._told.pop(peer, None)

    def compare(self, peer: PeerId, digest: bytes) -> None:
        """``peer`` knows revocations with this ``digest``: tell it ours, where they may be news to it."""
        known = self._reception.revocations
        if known.lists and known.digest not in {digest, self._told.get(peer)}:
            self._tell(peer)

    def _tell(self, peer: PeerId) -> None:
        link = self._context.links[peer]
        self._told[peer] = self._reception.revocations.digest
        link.post(self._reception.news(link.hello, link.member))

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Take what another member knows; raises RemoteProtocolError where it does not hold."""
        del payload
        if not isinstance(message, RevocationNews):
            return False
        if not self.learn(message.lists, message.epoch_key, source=sender):
            link = self._context.links.get(sender)
            if link is not None:
                link.charge("revocation lists that are known here")
        return True

    def learn(self, lists: Iterable[bytes], epoch_key: bytes, *, source: PeerId | None = None) -> bool:
        """Take lists and the DHT key of the newest, act on them, and pass them on; True where they are news.

        Raises RemoteProtocolError where a list does not hold.
        """
        known = self._reception.revocations
        if not known.learn_all(lists, epoch_key):
            return False
        self._context.story.tell("revoked", f"revocation list {known.number} of the organiser came")
        self._save()
        self._set_epoch(self._reception.epoch)
        out = bool(known.sentence(self._context.identity.member))
        for peer, link in () if out else tuple(self._context.links.items()):
            if known.sentence(link.member):
                # The list itself proves to the other side that this is true; the new key is not for it.
                link.post(RevocationNews(lists=known.lists, epoch_key=b""))
                link.feed(Close(CloseCode.REVOKED, known.sentence(link.member)))
            elif peer != source:
                self._tell(peer)
        self._changed.set()
        for listener in self.on_news:
            listener()
        return True

    def tell(self, lists: Iterable[bytes], epoch_key: bytes) -> RevocationReport:
        """Take what the organiser on this machine knows; says what is known then, and to how many links."""
        self.learn(lists, epoch_key)
        known = self._reception.revocations
        return RevocationReport(lists=known.lists, epoch_key=known.epoch_key, told=len(self._context.links))

    async def catch_up(self, links: Iterable[Link]) -> None:
        """Wait until the lists are here that the hellos on ``links`` speak of, or a few seconds are over.

        Without them a newcomer knows neither the present DHT key nor whom it must not talk to.
        """
        told = {link.hello.revocations for link in links} - {b"", self._reception.revocations.digest}
        try:
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while told and self._reception.revocations.digest not in told:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            _log.warning("the revocation lists that another peer knows did not come")

    def require_membership(self) -> None:
        """Raise RemoteRefusalError, to be shown to the user, where this peer is known to be revoked."""
        identity = self._context.identity
        sentence = self._reception.revocations.sentence(identity.member)
        if sentence:
            raise RemoteRefusalError(
                "revoked", f"{sentence}: this peer is out of the swarm {identity.name}; ask for a new invite"
            )

    async def until_revoked(self) -> None:
        """Wait; raises RemoteRefusalError once this peer is known to be revoked: nobody talks to it then."""
        while True:
            self.require_membership()
            self._changed.clear()
            await self._changed.wait()

    def _save(self) -> None:
        """At once, and without a thread: it is small and rare, and must not be overtaken by the next."""
        try:
            self._reception.revocations.save(self._path)
        except FailureError as error:
            _log.warning("revocations could not be saved, and will be asked for again", cause=str(error))
