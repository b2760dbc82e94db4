"""What the owner of a pool does about its links."""

from typing import Protocol

from swarm.identity.chain import Member
from swarm.log import get_log
from swarm.net.link import Link
from swarm.protocol.trust import Ban
from swarm.wire.messages.base import Message

log = get_log(__name__)


class Handlers(Protocol):
    """What the owner of a pool does about its links; to be inherited from.

    All are called synchronously in the event loop, in order. RemoteProtocolError out of any of them ends that
    link and is charged to the peer; whatever else they raise ends the pool's task group.
    """

    def on_up(self, link: Link) -> None:
        """A link is up."""
        ...

    def on_down(self, link: Link, reason: str) -> None:
        """A link that was up has ended. ``reason`` has the peer as its subject: ``left: Ctrl+C``."""
        ...

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        """A whole message came. ``payload`` belongs to the handler."""
        ...

    def on_offer(self, link: Link, message: Message, size: int) -> str:
        """A payload of ``size`` bytes begins: empty to take it, else a sentence for its sender why not.

        Nothing is taken unless somebody asks for it.
        """
        unwanted = f"nobody here takes a {type(message).__name__}"
        link.charge(unwanted)
        return unwanted

    def on_admitted(self, member: Member, credentials: bytes) -> None:
        """The ledger of uses has changed: ``member`` was let in, here or elsewhere, as its encoded
        ``credentials`` show. Save it."""

    def on_banned(self, ban: Ban) -> None:
        """A peer broke the protocol once too often; its link has ended. Save the bans."""
        log.warning("peer banned", peer=ban.peer, reason=ban.reason)
