"""What every service is given of its node: identity, clock, links, tasks, and how to send."""

from asyncio import TaskGroup
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from swarm.clock import Clock
from swarm.identity.membership import Identity
from swarm.identity.revocations import Revocations
from swarm.ids import JobId, PeerId
from swarm.net.link import Link
from swarm.services.story import Story
from swarm.wire.messages.base import Message

if TYPE_CHECKING:
    from swarm.services.job_blocks import JobBlocks
    from swarm.services.jobs import Jobs

Buffer = bytes | bytearray | memoryview


class Context(Protocol):
    """The node as its services see it."""

    @property
    def identity(self) -> Identity:
        """This peer."""
        ...

    @property
    def revocations(self) -> Revocations:
        """Who was revoked, as far as is known here."""
        ...

    @property
    def clock(self) -> Clock:
        """The node's clock."""
        ...

    @property
    def story(self) -> Story:
        """Where events are told."""
        ...

    @property
    def links(self) -> Mapping[PeerId, Link]:
        """The links that are up, by peer."""
        ...

    @property
    def tasks(self) -> TaskGroup:
        """The owner of the services' tasks; a bug in one of them ends the node."""
        ...

    def peers(self) -> tuple[PeerId, ...]:
        """The peers that a link is up with, in order of their ids."""
        ...

    def send(self, peer: PeerId, message: Message, payload: Buffer = b"") -> bool:
        """Send to a peer, or to this node's own services; False where no link to it is up."""
        ...

    def end_job(self, job: JobId, sentence: str) -> None:
        """The work for a job went wrong here: every service lets go of it (``swarm.services.boundary``)."""
        ...


class Service:
    """A part of a node. All are called synchronously, in order; to be inherited from."""

    def on_up(self, peer: PeerId) -> None:
        """A link is up."""

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link has ended. ``reason`` has the peer as its subject: ``left: its user ended it``."""

    def offer(self, sender: PeerId, message: Message, size: int) -> str | None:
        """A payload of ``size`` bytes begins: empty to take it, a sentence why not, None for none of its own.

        What no service takes is refused. Raises RemoteProtocolError to charge the sender.
        """
        return None

    def handle(self, sender: PeerId, message: Message, payload: memoryview) -> bool:
        """Take a message; False where it is none of this service's.

        Raises RemoteProtocolError to charge the sender.
        """
        return False

    def end_job(self, job: JobId, sentence: str) -> None:
        """The work for a job went wrong on this node, and why: end what is done for it here; never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What a node's further services are made from."""

    context: Context
    jobs: "Jobs"
    blocks: "JobBlocks"
