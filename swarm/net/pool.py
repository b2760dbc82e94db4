"""The pool: all links of one peer. It listens, calls, welcomes, and keeps one link per pair (decision D3)."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from swarm.clock import Clock
from swarm.errors import LinkLostError, MisuseError, RemoteError, RemoteProtocolError, RemoteRefusalError
from swarm.identity.membership import Identity, TlsFiles
from swarm.identity.terms import InviteId
from swarm.identity.uses import UseLedger
from swarm.ids import PeerId, short
from swarm.log import get_log
from swarm.net.address import Address
from swarm.net.arbiter import Arbiter
from swarm.net.config import PoolConfig
from swarm.net.dialing import Answers, Attempt, connect, shake_hands
from swarm.net.directory import Directory
from swarm.net.handlers import Handlers
from swarm.net.handshakes import Handshake, Handshakes
from swarm.net.link import Link
from swarm.net.network import Listener, Network
from swarm.net.pacing import Caps
from swarm.net.tasks import OwnedTasks
from swarm.net.tls import ChannelFactory, TlsChannel
from swarm.protocol.roster import PROBE_SECONDS, Roster
from swarm.protocol.session import Session
from swarm.protocol.session_budget import NodeMemory
from swarm.protocol.session_events import Close, End, Refuse
from swarm.protocol.welcome import Profile, Reception, refusal_code
from swarm.wire.frames import CloseCode
from swarm.wire.messages.base import Message
from swarm.wire.messages.hello import Hello
from swarm.wire.records.member import encode_credentials

log = get_log(__name__)

RIVAL_SECONDS: Final = PROBE_SECONDS + 2.0
"""How long a refused call waits for the link in whose favour it was refused."""
HEARING_SECONDS: Final = 1.0
"""How long a caller that does not want the link waits for what the other side thinks of it."""
SHUTDOWN_SECONDS: Final = 1.5
"""How long goodbyes may take when the pool closes."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Record:
    """What the pool knows of one link."""

    peer: PeerId
    called: "asyncio.Future[Link] | None" = None
    """Where this peer called: who waits for the link to come up."""
    handshake: Handshake | None = None
    """Where the other one called: counts until the link is up."""
    was_up: bool = False


class Pool:
    """The links of one peer; an asynchronous context manager that owns their tasks.

    ``reception`` has what later hellos say of this peer, its identity, the ledger of uses and who was
    revoked; all of it may be changed while the pool runs.
    """

    def __init__(
        self,
        config: PoolConfig,
        *,
        identity: Identity,
        network: Network,
        clock: Clock,
        handlers: Handlers,
        ledger: UseLedger | None = None,
    ) -> None:
        self.config = config
        profile = Profile(
            role=config.role, program=config.program, capabilities=config.capabilities, boot=config.boot
        )
        self.reception = Reception(identity, profile=profile, ledger=ledger or UseLedger())
        self._network = network
        self._clock = clock
        self._handlers = handlers
        self.handle_message = handlers.on_message
        self._channels = ChannelFactory(config.tls)
        self._handshakes = Handshakes()
        self._caps = Caps.of(up=config.up, down=config.down)
        self._memory = NodeMemory(payloads=config.payload_memory)
        roster = Roster(identity.peer, boot=config.boot, limit=config.links)
        self._arbiter = Arbiter(roster, clock=clock)
        self._records: dict[Link, _Record] = {}
        self._directory = Directory()
        self._listener: Listener | None = None
        self._tasks = OwnedTasks()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where this peer says that it can be reached."""
        return self.reception.profile.addresses

    @addresses.setter
    def addresses(self, addresses: tuple[str, ...]) -> None:
        self.reception.profile = replace(self.reception.profile, addresses=addresses)

    @property
    def identity(self) -> Identity:
        """This peer; an admission that another member gave is in it at once."""
        return self.reception.identity

    @property
    def links(self) -> Mapping[PeerId, Link]:
        """The links that are up, by peer."""
        return self._directory.links

    def has_met(self, peer: PeerId) -> bool:
        """Whether ``peer`` has shown by a link that it is a member: now, or earlier in this run."""
        return self._directory.has_met(peer)

    def invite_of(self, peer: PeerId) -> InviteId | None:
        """The invite that ``peer`` has shown by a link, now or earlier in this run."""
        return self._directory.invite_of(peer)

    def attempts(self, peer: PeerId) -> tuple[Attempt, ...]:
        """How ``peer`` was called last, address by address, the latest at the end."""
        return self._directory.attempts(peer)

    @property
    def listening(self) -> tuple[Address, ...]:
        """Where this peer takes calls; empty where it does not listen."""
        return self._listener.addresses if self._listener is not None else ()

    async def __aenter__(self) -> Self:
        """Listen. Raises FailureError where that is not possible. A pool may be entered again once left."""
        if self.config.listen is not None:
            self._listener = await self._network.listen(*self.config.listen, self._take_call)
        await self._tasks.open()
        self._tasks.add(self._arbiter.run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Say goodbye and end all tasks; raises what a handler raised, else the body's own error passes."""
        try:
            await self.aclose("its program ended")
        finally:
            await self._tasks.aclose()

    def _take_call(self) -> asyncio.BaseProtocol:
        """A channel for somebody who calls, under the leaf that is current then."""
        return self._channels.listening(self._connected)()

    def renew(self, identity: Identity, tls: TlsFiles) -> None:
        """Use a new leaf of the same peer for links to come; reads the files."""
        self.reception.identity = identity
        self._channels = ChannelFactory(tls)

    async def dial(
        self, addresses: Sequence[str], expect: PeerId | None = None, *, seconds: float | None = None
    ) -> Link:
        """A link with whoever answers at the first of ``addresses`` that gives one; ``expect`` says who must.

        Each address may take ``seconds`` to answer, or as long as the config says.

        Returns the link that there is already, where there is one with that peer. Raises RemoteRefusalError
        where a peer refused, else FailureError; the text lists each address with what it answered. Raises
        MisuseError for an address that is none.
        """
        answers = Answers(self._clock)
        try:
            for address in [Address.parse(text) for text in addresses]:
                if expect is not None and expect in self.links:
                    return self.links[expect]
                answers.begin()
                try:
                    link = await self._call(address, expect, seconds or self.config.call_seconds)
                except RemoteError as error:
                    answers.add(str(address), error)
                except asyncio.CancelledError:
                    answers.add(str(address), LinkLostError("had not answered when the call was given up"))
                    raise
                else:
                    answers.add(str(address))
                    expect = link.peer
                    return link
            raise answers.error()
        finally:
            if expect is not None and answers.attempts:
                self._directory.tried(expect, answers.attempts)

    async def aclose(self, reason: str) -> None:
        """Take no more connections, and end all links with ``reason``, within 1.5 s."""
        self._tasks.end()
        if self._listener is not None:
            self._listener.close()
        links = list(self._records)
        for link in links:
            link.feed(Close(CloseCode.LEAVING, reason))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SHUTDOWN_SECONDS):
                    for link in links:
                        await link.wait_closed()
        finally:
            self._tasks.cancel()

    # Connections.

    def _connected(self, channel: TlsChannel) -> None:
        """Somebody called; a server that is closed may still hand over a call that came just before."""
        if self._tasks.is_open:
            self._tasks.add(self._welcome(channel))
        else:
            channel.abort()

    async def _welcome(self, channel: TlsChannel) -> None:
        """Shake hands with whoever called, and carry the link that comes of it."""
        handshake = self._handshakes.begin(channel, now=self._clock.elapsed())
        if handshake is None:
            await channel.aclose(0.0)
            return
        try:
            await shake_hands(channel)
            link = self._launch(channel, address=str(channel.remote), handshake=handshake)
        except RemoteError as error:
            log.debug("caller turned away", address=channel.remote, reason=error)
        else:
            await self._carry(link)
        finally:
            handshake.finish()

    async def _call(self, address: Address, expect: PeerId | None, seconds: float) -> Link:
        self._require_open()
        channel = self._channels.dialed()
        await connect(self._network, address, channel, seconds=seconds)
        peer = channel.peer
        try:
            self._require_open()
            if expect is not None and peer != expect:
                raise RemoteRefusalError("wrong-peer", f"is {short(peer)}, and {short(expect)} was expected")
        except RemoteError:
            await channel.aclose(0.0)
            raise
        called: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
        link = self._launch(channel, address=str(address), called=called)
        self._tasks.add(self._carry(link))
        try:
            return await called
        except asyncio.CancelledError:
            link.feed(Close(CloseCode.LEAVING, "the call was given up"))
            raise
        except RemoteRefusalError as error:
            if error.code != "duplicate" or peer == self.identity.peer:
                raise
            rival = await self._directory.wait_for(peer, seconds=RIVAL_SECONDS)
            if rival is None:
                raise
            return rival

    def _require_open(self) -> None:
        if not self._tasks.is_open:
            raise LinkLostError("is not called any more: this program ends")

    def _launch(
        self,
        channel: TlsChannel,
        *,
        address: str,
        called: "asyncio.Future[Link] | None" = None,
        handshake: Handshake | None = None,
    ) -> Link:
        """A link on a channel that has shaken hands."""
        peer = channel.peer
        hello = self.reception.introduce(peer, now=self._clock.wall())
        now, heartbeat = self._clock.elapsed(), self.config.heartbeat
        memory = self._memory.link()
        session = Session(hello, dialed=channel.dialed, now=now, heartbeat=heartbeat, memory=memory)
        link = Link(channel, session, owner=self, clock=self._clock, address=address, caps=self._caps)
        self._records[link] = _Record(peer=peer, called=called, handshake=handshake)
        self._arbiter.add(link, peer)
        return link

    async def _carry(self, link: Link) -> None:
        try:
            await link.run()
        finally:
            del self._records[link]

    # What links report (``swarm.net.link.LinkOwner``).

    def handle_hello(self, link: Link, hello: Hello) -> None:
        """Judge who it is, then whether there is room for another link with it."""
        observed = str(link.remote) if link.remote.port else ""
        try:
            verdict = self.reception.judge(
                hello, leaf=link.certificate, observed=observed, now=self._clock.wall()
            )
        except RemoteRefusalError as error:
            refusal = Refuse(refusal_code(error.code), str(error))
            if link.dialed:
                self._tasks.add(_refuse_later(link, refusal))
            else:
                link.feed(refusal)
            return
        link.member, link.hello = verdict.member, hello
        if verdict.counted:
            admission = verdict.accept.admission or hello.admission
            self._handlers.on_admitted(verdict.member, encode_credentials(hello.chain, admission))
        self._arbiter.introduced(link, accept=verdict.accept)

    def handle_up(self, link: Link) -> None:
        """Both sides have accepted."""
        record = self._records[link]
        try:
            if link.accept.observed:
                Address.parse(link.accept.observed)
        except MisuseError as error:
            raise RemoteProtocolError(str(error)) from None
        revoked = self.reception.revocations.sentence(link.member)
        if revoked:  # since its hello was judged
            link.feed(Close(CloseCode.REVOKED, revoked))
            return
        self.reception.welcomed(link.accept, now=self._clock.wall())
        self._arbiter.risen(link)
        if record.handshake is not None:
            record.handshake.finish()
        record.was_up = True
        self._directory.add(link)
        log.debug("link up", peer=record.peer, address=link.address, dialed=link.dialed)
        self._handlers.on_up(link)
        if record.called is not None and not record.called.done():
            record.called.set_result(link)

    def handle_answer(self, link: Link) -> None:
        """It gave a sign of life."""
        self._arbiter.sign_of_life(link)

    def handle_down(self, link: Link, end: End) -> None:
        """It carries nothing any more."""
        record = self._records[link]
        if record.called is not None and not record.called.done():
            record.called.set_exception(_why_no_link(end))
        log.debug("link down", peer=record.peer, address=link.address, reason=end)
        try:
            if record.was_up:
                self._directory.remove(link)
                self._handlers.on_down(link, str(end))
            if end.by == "us" and end.code == CloseCode.PROTOCOL.name.lower():
                self._offended(record.peer, end.sentence)
        finally:
            self._arbiter.remove(link)

    def _offended(self, peer: PeerId, what: str) -> None:
        now, wall = self._clock.elapsed(), self._clock.wall()
        ban = self.reception.trust.offend(peer, what, elapsed=now, wall=wall)
        if ban is not None:
            self._handlers.on_banned(ban)

    def handle_strike(self, link: Link) -> bool:
        """It did something in vain: counts for the peer, on whichever link."""
        now, wall = self._clock.elapsed(), self._clock.wall()
        return self.reception.trust.strike(self._records[link].peer, elapsed=now, wall=wall)

    def handle_offer(self, link: Link, message: Message, size: int) -> str:
        """A payload begins."""
        return self._handlers.on_offer(link, message, size)


async def _refuse_later(link: Link, refusal: Refuse) -> None:
    """Where both sides refuse, the one that called is to hear it in words that are meant for it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEARING_SECONDS):
            await link.wait_closed()
    link.feed(refusal)


def _why_no_link(end: End) -> RemoteError:
    return RemoteRefusalError(end.code, str(end)) if end.refusal else LinkLostError(str(end))
