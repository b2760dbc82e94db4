"""One node of the swarm, put together: links, discovery, blocks, jobs, and what else it is given to do.

Torch-free. A peer that trains is given the service that ``swarm.services.training`` has for it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from swarm.clock import Clock
from swarm.data.blocks import BlockStore
from swarm.errors import LocalError, MisuseError, RemoteProtocolError
from swarm.identity.chain import Member
from swarm.identity.membership import Identity
from swarm.identity.revocations import Revocations
from swarm.identity.uses import UseLedger
from swarm.ids import JobId, PeerId, short
from swarm.log import get_log
from swarm.net.address import Address
from swarm.net.config import PoolConfig
from swarm.net.handlers import Handlers
from swarm.net.link import Link
from swarm.net.pool import Pool
from swarm.protocol.trust import Ban, Trust
from swarm.services.archive import Archive
from swarm.services.bans import load_bans, save_bans
from swarm.services.blocks import BlockExchange
from swarm.services.boundary import job_boundary, job_of
from swarm.services.commands import cancel_job, export_job, tell_revocations
from swarm.services.context import Buffer, Service, Services
from swarm.services.coordinator import Coordinator
from swarm.services.entrance import Entrance, EntranceConfig
from swarm.services.gossip import Gossip
from swarm.services.job_blocks import JobBlocks
from swarm.services.jobs import Jobs
from swarm.services.lines import LineBook
from swarm.services.members import Members, Met, load_members, save_members
from swarm.services.neighbours import Neighbours
from swarm.services.networks import Networks
from swarm.services.node_status import HeldStage, describe_node
from swarm.services.referrals import VISITORS, Referrals
from swarm.services.renewal import keep_renewed
from swarm.services.revoked import REVOCATIONS_FILE, Revoked
from swarm.services.soft_state import SoftState
from swarm.services.status.document import StatusDocument
from swarm.services.status.source import WHOLE, CancelReport, ExportReport, RevocationReport, Selection
from swarm.services.story import Story
from swarm.services.version import program_version
from swarm.services.withholding import Withholding
from swarm.wire.limits import MAX_LINKS
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Capabilities, Role

USES_FILE: Final = "uses.json"
CONTACTS_FILE: Final = "contacts.json"
BLOCKS_FOLDER: Final = "blocks"

_log = get_log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What a node is and where."""

    folder: Path
    """Its home, where the identity is saved."""
    role: Role
    listen: Address
    """Host (empty: all interfaces) and port (0: a free one), for TCP and UDP."""
    advertise: tuple[str, ...] = ()
    """``host:port`` to tell others; empty: what it finds out itself."""
    disk: int
    """Bytes of the block store."""
    capabilities: Capabilities
    up: int = 0
    down: int = 0
    """Bytes a second that all links together may send and receive; 0 does not limit."""
    links: int = MAX_LINKS
    """Links that it keeps; who comes after that is referred to others."""


class _Stop(Exception):  # noqa: N818 - not an error: the way to end a task group
    """Ends the node's tasks."""


class Node(Handlers):
    """A node; an asynchronous context manager. Entering joins the swarm, leaving says goodbye.

    Entering raises FailureError or RemoteRefusalError, in one line, where it cannot join.
    """

    def __init__(
        self,
        config: NodeConfig,
        *,
        identity: Identity,
        clock: Clock,
        networks: Networks | None = None,
        extra: Callable[[Services], Sequence[Service]] = lambda _: (),
    ) -> None:
        self._networks = networks or Networks()
        self._leaving = False
        self.config = config
        self.clock = clock
        self.story = Story(clock, _log)
        self._state = SoftState(config.folder, self.story)
        self.since = clock.wall()
        self.tasks = asyncio.TaskGroup()
        self.members = Members(clock, known=load_members(config.folder))
        self._ledger = UseLedger.load(config.folder / USES_FILE)
        self._local: asyncio.Queue[tuple[Message, memoryview]] = asyncio.Queue()
        self.pool = Pool(
            PoolConfig(
                role=config.role,
                tls=identity.tls_files(config.folder),
                capabilities=config.capabilities,
                program=f"fusion-swarm {program_version()}",
                listen=(config.listen.host, config.listen.port),
                up=config.up,
                down=config.down,
                links=config.links + VISITORS,
            ),
            identity=identity,
            network=self._networks.streams,
            clock=clock,
            handlers=self,
            ledger=self._ledger,
        )
        self.pool.reception.trust = Trust(load_bans(config.folder))
        self.pool.reception.revocations = Revocations.load(
            config.folder / REVOCATIONS_FILE, authority=identity.authority
        )
        self.jobs = Jobs(self)
        withholding = Withholding(self.jobs.all)
        store = BlockStore(config.folder / BLOCKS_FOLDER, config.disk)
        self.exchange = BlockExchange(store, clock=clock, tasks=self.tasks, may_have=withholding.may_have)
        self.blocks = JobBlocks(self, self.exchange, withholding)
        lines = LineBook(config.folder, self, self.blocks)
        coordinator = Coordinator(self, self.jobs, self.blocks, lines, coordinates=config.role == "peer")
        made = extra(Services(context=self, jobs=self.jobs, blocks=self.blocks))
        self._archive = Archive(
            config.folder, jobs=self.jobs, blocks=self.blocks, state=self._state, tasks=self.tasks
        )
        self.entrance = Entrance(
            self.pool,
            EntranceConfig(
                role=config.role,
                listen=config.listen,
                advertise=config.advertise,
                contacts=config.folder / CONTACTS_FILE,
            ),
            clock=clock,
            network=self._networks.datagrams,
            neighbourhood=self._networks.neighbours,
        )
        self.revoked = Revoked(self, self.pool.reception, config.folder, set_epoch=self.entrance.set_epoch)
        self.revoked.on_news.append(self.jobs.drop_revoked)
        room = Referrals(self, limit=config.links, referred=self.entrance.referred)
        self.gossip = Gossip(self, self.pool, revoked=self.revoked, on_use=self._save_uses)
        self.entrance.wants = Neighbours(self, self.gossip, self.jobs).wants
        self._services: tuple[Service, ...] = (self.revoked, room, self.gossip, self.jobs, coordinator, *made)

    # Life.

    async def __aenter__(self) -> Self:
        self.story.follow(self.exchange)
        await self.entrance.open()
        try:
            await self.tasks.__aenter__()
            self.tasks.create_task(self._deliver_local(), name="local messages")
            self._archive.resume()
            renewal = keep_renewed(self.pool, self.config.folder, clock=self.clock)
            self.tasks.create_task(renewal, name="renewal")
            self.tasks.create_task(self.members.keep(self._keep_members), name="keep members")
            self.tasks.create_task(self.gossip.run(), name="gossip")
            await self._join()
        except BaseException as error:
            cancelled = error if isinstance(error, asyncio.CancelledError) else None
            await self._close(cancelled, reason="could not join")
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        cancelled = error if isinstance(error, asyncio.CancelledError) else None
        await self._close(cancelled, reason="its user ended it" if cancelled else "its program ended")

    async def _close(self, cancelled: asyncio.CancelledError | None, *, reason: str) -> None:
        """Say goodbye, end all tasks, and raise what ended one of them.

        A task that fails cancels whoever has entered the node, so the group has to see ``cancelled``.
        """
        self._leaving = True
        try:
            self._archive.close()
            self.gossip.say_goodbye()
            await self.pool.aclose(reason)
            await self._keep_members(self.members.all())
            await self.entrance.aclose()
        finally:
            try:
                self.tasks.create_task(_stop(), name="stop")
            except RuntimeError:
                _log.debug("the tasks are ending already")
            try:
                await self.tasks.__aexit__(type(cancelled) if cancelled else None, cancelled, None)
            except* _Stop:
                pass
            finally:
                await self.pool.__aexit__(None, None, None)

    async def _join(self) -> None:
        self.revoked.require_membership()
        await self.entrance.join(self, self.members.addresses(), revoked=self.revoked)

    @property
    def addresses(self) -> tuple[str, ...]:
        """``host:port`` where it says it can be reached."""
        return self.pool.addresses

    @property
    def has_joined(self) -> bool:
        """Whether it was in its swarm, or has begun one, since it was entered."""
        return self.entrance.has_joined

    # The node as its owner sees it (``swarm.services.status.source.StatusSource``).

    def held(self) -> tuple[HeldStage, ...]:
        """The stages that this peer holds; those of a peer that trains."""
        return ()

    @property
    def idle_since(self) -> float:
        """Wall time since when it has held no stage."""
        return self.since

    @property
    def paused_since(self) -> float | None:
        """Wall time since when its user has it give itself to no job; None while it works."""
        return None

    def set_paused(self, *, paused: bool) -> None:
        """Give itself to no job from now on, or again; a node that gives nothing anyhow refuses."""
        raise MisuseError(f"this node ({self.config.role}) holds no stages, only peers do: give --name")

    def status(self) -> StatusDocument:
        """The present status."""
        return describe_node(self)

    async def cancel(self, job: str) -> CancelReport:
        """End a job in the whole swarm; see ``swarm.services.commands``."""
        return await cancel_job(self.jobs, job)

    async def revoke(self, lists: tuple[bytes, ...], epoch_key: bytes) -> RevocationReport:
        """Tell the swarm of revocations; see ``swarm.services.commands``."""
        return tell_revocations(self.revoked, lists, epoch_key)

    async def until_revoked(self) -> None:
        """Wait; raises RemoteRefusalError once this peer is known to be revoked."""
        await self.revoked.until_revoked()

    async def export(self, job: str, path: Path, selection: Selection = WHOLE) -> ExportReport:
        """Write a job's trained weights; see ``swarm.services.commands``."""
        return await export_job(self.jobs, self.blocks, job, path, selection)

    # The node as its services see it (``swarm.services.context.Context``).

    @property
    def identity(self) -> Identity:
        """This peer."""
        return self.pool.identity

    @property
    def revocations(self) -> Revocations:
        """Who was revoked."""
        return self.pool.reception.revocations

    @property
    def links(self) -> Mapping[PeerId, Link]:
        """The links that are up."""
        return self.pool.links

    def peers(self) -> tuple[PeerId, ...]:
        """Whom a link is up with."""
        return tuple(sorted(self.pool.links))

    def send(self, peer: PeerId, message: Message, payload: Buffer = b"") -> bool:
        """Send; see ``Context``. What is sent to this node itself is delivered in a later turn."""
        if peer == self.identity.peer:
            self._local.put_nowait((message, memoryview(payload)))
            return True
        link = self.links.get(peer)
        if link is None or link.end is not None:
            return False
        link.post(message, payload)
        return True

    def end_job(self, job: JobId, sentence: str) -> None:
        """The work for a job went wrong here; see ``Context``."""
        for service in self._services:
            service.end_job(job, sentence)

    async def _deliver_local(self) -> None:
        while True:
            message, payload = await self._local.get()
            try:
                self._dispatch(self.identity.peer, message, payload)
            except RemoteProtocolError as error:
                raise LocalError(f"this node broke its own protocol: {error}") from error

    # Links (``swarm.net.handlers.Handlers``).

    def on_up(self, link: Link) -> None:
        """A link is up."""
        self.members.on_up(link)
        if self.identity.admission and link.accept.admission == self.identity.admission:
            save = partial(self.identity.save, self.config.folder)
            self.tasks.create_task(self._state.keep("the admission is", save), name="save identity")
        role = "" if link.hello.role == "peer" else f" ({link.hello.role})"
        self.story.tell(
            "linked", f"linked with peer {short(link.peer)}{role} at {link.address}", peer=link.peer
        )
        for service in self._services:
            service.on_up(link.peer)
        self.entrance.linked()

    def on_down(self, link: Link, reason: str) -> None:
        """A link ended."""
        self.members.on_down(link.peer)
        self.exchange.on_down(link)
        if self._leaving:
            return
        self.story.tell("left", f"peer {short(link.peer)} {reason}", peer=link.peer)
        for service in self._services:
            service.on_down(link.peer, reason)
        self.entrance.lost(link)

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        """A message came."""
        if not self.exchange.on_message(link, message, payload):
            self._dispatch(link.peer, message, payload)

    def on_offer(self, link: Link, message: Message, size: int) -> str:
        """A payload begins."""
        answer = self.exchange.on_offer(link, message, size)
        for service in self._services:
            if answer is not None:
                return answer
            answer = service.offer(link.peer, message, size)
        return super().on_offer(link, message, size) if answer is None else answer

    def on_admitted(self, member: Member, credentials: bytes) -> None:
        """A use of an invite was counted."""
        self.gossip.count(credentials)
        self._save_uses()

    def _save_uses(self) -> None:
        save = partial(self._ledger.save, self.config.folder / USES_FILE)
        self.tasks.create_task(self._state.keep("the uses of invites are", save), name="save uses")

    def on_banned(self, ban: Ban) -> None:
        """A peer broke the protocol once too often."""
        self.story.tell("refused", f"peer {short(ban.peer)} is banned: {ban.reason}", peer=ban.peer)
        bans = self.pool.reception.trust.bans(wall=self.clock.wall())
        save = partial(save_bans, self.config.folder, bans)
        self.tasks.create_task(self._state.keep("the bans are", save), name="save bans")

    def _dispatch(self, sender: PeerId, message: Message, payload: memoryview) -> None:
        """To the services. What a message of this node's own breaks is the fault of the job it is about."""
        job = job_of(message)
        if job is None:
            self._hand_out(sender, message, payload)
            return
        passes = () if sender == self.identity.peer else (RemoteProtocolError,)
        with job_boundary(job, partial(self.end_job, job), passes=passes):
            self._hand_out(sender, message, payload)

    def _hand_out(self, sender: PeerId, message: Message, payload: memoryview) -> None:
        for service in self._services:
            if service.handle(sender, message, payload):
                return
        _log.debug("a message that nobody here takes", peer=sender, message=type(message).__name__)
        link = self.links.get(sender)
        if link is not None:
            link.charge(f"nobody here takes a {type(message).__name__}")

    async def _keep_members(self, met: tuple[Met, ...]) -> None:
        await self._state.keep("the members met are", partial(save_members, self.config.folder, met))


async def _stop() -> None:
    raise _Stop
