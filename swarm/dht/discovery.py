"""Discovery: publish where we are, find where the others are (decision D2). Nothing else uses the DHT.

::

    discovery = Discovery(config, key=key, clock=clock)
    discovery.set_epoch(number, epoch_key)       # again at each rotation
    await discovery.start()
    group.create_task(discovery.run())           # in the owner's TaskGroup, until cancelled
    await discovery.join(seeds)
    await discovery.publish(["198.51.100.7:7423"], "peer")
    records = await discovery.find()
    await discovery.aclose()

Liveness, membership and placement never hang on what is read here: a record says where a peer claimed to
be, under its own key, and the link to it shows the rest.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from swarm.clock import Clock
from swarm.dht.calls import Target
from swarm.dht.endpoint import Endpoint, Network, UdpNetwork
from swarm.dht.finding import Finding
from swarm.dht.joining import Joining, JoinReport
from swarm.dht.knocking import Knocking
from swarm.dht.limits import MAX_REMEMBERED
from swarm.dht.node import Node
from swarm.dht.publishing import Publishing
from swarm.dht.reachability import Storing
from swarm.dht.remembered import encode_contacts, load_contacts, save_contacts
from swarm.dht.upkeep import Upkeep
from swarm.errors import FailureError, LocalError
from swarm.identity.keys import PrivateKey
from swarm.ids import PeerId, SwarmId, base32_decode
from swarm.log import get_log
from swarm.wire.messages.hello import Role
from swarm.wire.records.peer import MAX_RECORD_LIFETIME, PeerRecord

_log = get_log(__name__)

_TICK_SECONDS: Final = 5.0
"""Chores wait in short naps, because the loop's timers stand still while a laptop sleeps."""

_MINUTE: Final = 60.0
_KNOCK_SECONDS: Final = 15.0
_SAVE_SECONDS: Final = 300.0
_REJOIN_SECONDS: Final = 15.0
_REVISIT_SECONDS: Final = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryConfig:
    """How one node of the DHT behaves."""

    swarm: SwarmId
    """The swarm whose peers are found."""
    listen: tuple[str, ...] = ("0.0.0.0", "::")  # noqa: S104 - a peer is there to be reached
    """Hosts to listen on, at most one for each address family."""
    port: int = 7423
    """UDP port; 0 takes any that is free."""
    storing: Storing = "always"
    """When to hold records for others: always, where strangers are known to reach us, or never."""
    state: Path | None = None
    """File that remembers contacts between runs; None remembers none."""
    lifetime: float = 1800.0
    """Seconds that our record is valid for; it is renewed after a third of that."""
    join_deadline: float = 10.0
    """Seconds after which :meth:`Discovery.join` gives up."""

    def __post_init__(self) -> None:
        if not self.listen:
            raise LocalError("a node has to listen somewhere")
        if not 0 < self.lifetime <= MAX_RECORD_LIFETIME:
            raise LocalError(f"a record lives for more than 0 and at most {MAX_RECORD_LIFETIME:g} s")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryStatistics:
    """What a status page shows."""

    contacts: int
    records: int
    """Held here; a publisher's counts under each of its two keys."""
    stored_bytes: int
    reached: bool
    """Whether strangers from beyond the local network have reached us lately."""
    confirmed: int
    """Other nodes that confirmed our own record when it was published last."""
    calls: int
    calls_repeated: int
    calls_unanswered: int
    datagrams: dict[str, int]
    """Sent, received and refused datagrams, the latter by reason."""


class Discovery:
    """One peer's use of the DHT."""

    def __init__(
        self,
        config: DiscoveryConfig,
        *,
        key: PrivateKey,
        clock: Clock,
        network: Network | None = None,
        invite_of: Callable[[PeerId], str | None] = lambda _: None,
    ) -> None:
        """``invite_of`` says by which invite a peer is a member, None where that is not known."""
        self._config = config
        self._network: Network = network or UdpNetwork()
        self._node = Node(key, swarm=config.swarm, storing=config.storing, clock=clock, invite_of=invite_of)
        self._publishing = Publishing(self._node, key=key, lifetime=config.lifetime)
        self._finding = Finding(self._node)
        self._upkeep = Upkeep(self._node)
        self._knocking = Knocking(self._node, network=self._network, hosts=config.listen)
        self._endpoint: Endpoint | None = None
        self._seeds: tuple[str, ...] = ()
        self._remembered: list[Target] = []
        self._alone = False

    @property
    def port(self) -> int:
        """The UDP port; raises LocalError before :meth:`start`."""
        if self._endpoint is None:
            raise LocalError("discovery has not been started")
        return self._endpoint.port

    def set_epoch(self, number: int, key: bytes) -> None:
        """Use the DHT key of epoch ``number``; the highest two are accepted from others.

        Raises RemoteProtocolError for a key that is not 32 bytes.
        """
        self._node.protocol.sealer.set_epoch(number, key)

    async def start(self) -> None:
        """Listen, and read the remembered contacts. Raises FailureError where the port cannot be had."""
        if self._config.state is not None:
            self._remembered = await asyncio.to_thread(load_contacts, self._config.state)
        self._adopt(await self._open(self._config.port))

    async def aclose(self) -> None:
        """Stop listening, and write the remembered contacts. Calls under way end as if unanswered."""
        if self._endpoint is None:
            return
        self._node.protocol.close()
        self._endpoint.close()
        self._endpoint = None
        await self._save()

    async def run(self) -> None:
        """For ever, until cancelled: renew our record, look after contacts, records and newcomers.

        Begins with the remembered contacts, where there is nobody else.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._upkeep.hand_over())
            group.create_task(self._knocking.give())
            group.create_task(self._every(_KNOCK_SECONDS, self._knocking.ask))
            group.create_task(self._every(_TICK_SECONDS, self._tick))
            group.create_task(self._keep_in_touch())
            group.create_task(self._every(_MINUTE, self._publishing.refresh))
            group.create_task(self._every(_MINUTE, self._upkeep.ping_stale))
            group.create_task(self._every(_MINUTE, self._upkeep.refresh_buckets))
            group.create_task(self._every(_SAVE_SECONDS, self._save))
            group.create_task(self._every(_REVISIT_SECONDS, self._revisit))

    async def join(self, seeds: Sequence[str]) -> JoinReport:
        """Reach the swarm through any of ``seeds`` (``HOST:PORT``; names resolve) or a remembered contact.

        Raises FailureError, in one line with what each address answered, where nobody did within the
        deadline; MisuseError for a seed that is no address. While :meth:`run` runs, the seeds are tried
        again now and then, and at once when no contact is left.
        """
        if not self._node.protocol.sealer.has_epoch:
            raise LocalError("discovery cannot join before it has an epoch key")
        self._seeds = tuple(seeds)
        return await self._reach(self._seeds, self._remembered)

    async def _reach(self, seeds: Sequence[str], remembered: Sequence[Target]) -> JoinReport:
        started = self._node.clock.elapsed()
        joining = Joining(
            self._node.protocol.calls, clock=self._node.clock, deadline=self._config.join_deadline
        )
        attempts = await joining.run(seeds, remembered)
        await self._node.closest(self._node.id)
        return JoinReport(
            attempts=attempts,
            contacts=len(self._node.table.contacts()),
            elapsed=self._node.clock.elapsed() - started,
        )

    async def publish(self, addresses: Sequence[str], role: Role) -> int:
        """Publish that we are reached at ``addresses``, now and, while :meth:`run` runs, from now on.

        Returns how many nodes other than this one confirmed to hold the record; 0 where we are alone, and
        then it is kept here all the same. Raises MisuseError where the addresses make no record.
        """
        return await self._publishing.publish(tuple(addresses), role)

    async def find(self, *, thorough: bool = False) -> list[PeerRecord]:
        """The live records of all peers, one each, our own among them; in turns from those who gave them.

        In a swarm of more than some fifty peers each call finds more of them, or all of them where
        ``thorough``, which takes a lookup for each of 64 shards.
        """
        return [held.record for held in await self._finding.everybody(thorough=thorough)]

    async def find_peer(self, peer: PeerId) -> PeerRecord | None:
        """The live record of ``peer``; None where nobody has it. Raises ValueError for what is no id."""
        held = await self._finding.one(base32_decode(peer))
        return held.record if held is not None else None

    async def confirm(self) -> bool:
        """Whether another node still gives back the record that we published last."""
        return await self._publishing.confirm()

    def forget_records(self) -> None:
        """Drop all records that this node holds or has found, its own included."""
        self._node.storage.clear()
        self._finding.forget()

    def statistics(self) -> DiscoveryStatistics:
        """Numbers for the status page."""
        calls = self._node.protocol.calls
        return DiscoveryStatistics(
            contacts=len(self._node.table.contacts()),
            records=len(self._node.storage),
            stored_bytes=self._node.storage.stored_bytes,
            reached=self._node.reachability.is_reached,
            confirmed=self._publishing.confirmed,
            calls=calls.made,
            calls_repeated=calls.repeated,
            calls_unanswered=calls.unanswered,
            datagrams=dict(self._node.protocol.counts),
        )

    async def _open(self, port: int) -> Endpoint:
        return await self._network.open(self._config.listen, port, self._node.protocol.on_datagram)

    def _adopt(self, endpoint: Endpoint) -> None:
        self._endpoint = self._node.protocol.endpoint = endpoint

    async def _tick(self) -> None:
        """Drop expired records, and open a lost socket anew on the port that others know."""
        self._upkeep.expire()
        lost = self._endpoint
        if lost is None or lost.is_sound:
            return
        lost.close()
        try:
            endpoint = await self._open(lost.port)
        except FailureError as error:
            _log.warning("datagram socket still lost", reason=error)
            return
        if self._endpoint is lost:
            self._adopt(endpoint)
        else:
            endpoint.close()

    async def _keep_in_touch(self) -> None:
        await self._rejoin()
        await self._every(_REJOIN_SECONDS, self._rejoin)

    async def _rejoin(self) -> None:
        """Where no contact is left, try the seeds and those we remember."""
        known = bool(self._seeds or self._remembered)
        if self._node.table.contacts() or not known or not self._node.protocol.sealer.has_epoch:
            return
        try:
            report = await self._reach(self._seeds, self._remembered)
        except FailureError as error:
            if not self._alone and not self._node.table.contacts():
                _log.warning("no contact in the swarm", reason=error)
                self._alone = True
        else:
            _log.info("in touch with the swarm", contacts=report.contacts)
            self._alone = False

    async def _revisit(self) -> None:
        """Ask the seeds even where all is well: one that started anew knows nobody, and only newcomers would
        meet it."""
        if not self._seeds or not self._node.table.contacts():
            return
        try:
            await self._reach(self._seeds, ())
        except FailureError as error:
            _log.debug("no seed answers", reason=error)

    async def _save(self) -> None:
        contacts = self._node.table.contacts()
        if not contacts:
            return
        self._remembered = [Target(node=one.id, address=one.address) for one in contacts][:MAX_REMEMBERED]
        if self._config.state is None:
            return
        try:
            await asyncio.to_thread(save_contacts, self._config.state, encode_contacts(contacts))
        except FailureError as error:
            _log.warning("contacts cannot be remembered", reason=error)

    async def _every(self, seconds: float, chore: Callable[[], Awaitable[None]]) -> None:
        clock = self._node.clock
        due = clock.elapsed() + seconds
        while True:
            await asyncio.sleep(min(seconds, _TICK_SECONDS))
            if clock.elapsed() >= due:
                await chore()
                due = clock.elapsed() + seconds
