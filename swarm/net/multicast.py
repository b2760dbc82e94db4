"""Peers of one swarm in the same local network, found by multicast DNS (RFC 6762, RFC 6763).

What is said to the network is a name of chance, a tag that those can compare who know the swarm's id, and
where this peer listens: never an invite, a PeerId, or the name of a host, a swarm or a person. What is heard
is a hint; whoever answers there has to pass the TLS door like anybody else.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from zeroconf import InterfaceChoice, IPVersion, ServiceStateChange, Zeroconf
from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

from swarm.ids import SwarmId, base32
from swarm.log import get_log
from swarm.net.address import Address
from swarm.net.interfaces import is_on_link, own_hosts

SERVICE: Final = "_fusion-swarm._tcp.local."
TAG_BYTES: Final = 10
"""Of a hash: two swarms in one network share a tag by chance only."""
NAME_BYTES: Final = 8

MOST_NEIGHBOURS: Final = 64
"""Announcements that are looked at in one network: anybody in it can make them up."""
MOST_HOSTS: Final = 4
"""Addresses that are taken from one announcement."""
ANSWER_SECONDS: Final = 3.0
"""How long a neighbour may take to say where it listens."""
LOOK_SECONDS: Final = 15.0
"""Between two looks at whether this machine is in another network now."""
GOODBYE_SECONDS: Final = 1.0

_log = get_log(__name__)

OnFound = Callable[[Sequence[str]], None]


def tag_of(swarm: SwarmId) -> str:
    """What announcements call ``swarm``: it can be compared with a known id, and tells nobody the id."""
    return base32(hashlib.sha256(b"fusion-swarm neighbours " + swarm.encode()).digest()[:TAG_BYTES])


class Multicast:
    """Announces this peer and hears of others, on all interfaces, or on those with given addresses."""

    def __init__(self, *, interfaces: tuple[str, ...] = ()) -> None:
        self._interfaces = interfaces

    async def run(self, swarm: SwarmId, port: int, found: OnFound) -> None:
        """For ever: say that a peer of ``swarm`` listens on ``port``, and call ``found`` with the
        ``host:port`` of every other one.

        Begins anew when the machine's addresses have changed. Where there is no multicast, that is logged.
        """
        logging.getLogger("zeroconf").setLevel(logging.CRITICAL)  # what it cannot send is no news to anybody
        while True:
            hosts = self._hosts()
            if hosts:
                try:
                    await self._serve(hosts, swarm, port, found)
                except OSError as error:
                    _log.info("no neighbours are looked for: this machine has no multicast", reason=error)
            await self._until_moved(hosts)

    def _hosts(self) -> tuple[str, ...]:
        return self._interfaces or own_hosts()

    async def _until_moved(self, hosts: tuple[str, ...]) -> None:
        while self._hosts() == hosts:  # noqa: ASYNC110 - the system does not say when they change
            await asyncio.sleep(LOOK_SECONDS)

    async def _serve(self, hosts: tuple[str, ...], swarm: SwarmId, port: int, found: OnFound) -> None:
        """Until the addresses of this machine change; raises OSError where it has no multicast."""
        tag = tag_of(swarm)
        own = f"{tag}-{base32(os.urandom(NAME_BYTES))}"
        announcement = AsyncServiceInfo(
            SERVICE, f"{own}.{SERVICE}", port=port, server=f"{own}.local.", parsed_addresses=list(hosts)
        )
        opened = self._open()
        try:
            async with asyncio.TaskGroup() as tasks:
                listening = _Listening(opened, tasks, tag=tag, own=announcement.name, found=found)
                browser = AsyncServiceBrowser(opened.zeroconf, SERVICE, handlers=[listening.changed])
                await (await opened.async_register_service(announcement, cooperating_responders=True))
                await self._until_moved(hosts)
                await browser.async_cancel()
        finally:
            with suppress(TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await opened.async_unregister_all_services()
            await opened.async_close()

    def _open(self) -> AsyncZeroconf:
        """Sockets on the interfaces, in both families where there are both."""
        if self._interfaces:
            return AsyncZeroconf(interfaces=list(self._interfaces))
        try:
            return AsyncZeroconf(interfaces=InterfaceChoice.All, ip_version=IPVersion.All)
        except OSError:
            return AsyncZeroconf(interfaces=InterfaceChoice.All, ip_version=IPVersion.V4Only)


class _Listening:
    """Looks at announcements with the swarm's tag, but this peer's own, and asks where they listen."""

    def __init__(
        self, opened: AsyncZeroconf, tasks: asyncio.TaskGroup, *, tag: str, own: str, found: OnFound
    ) -> None:
        self._opened = opened
        self._tasks = tasks
        self._prefix = f"{tag}-"
        self._found = found
        self._seen = {own}

    def changed(
        self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        """Somebody announced itself, or left."""
        del zeroconf, service_type
        is_news = state_change is not ServiceStateChange.Removed and name not in self._seen
        if is_news and name.startswith(self._prefix) and len(self._seen) <= MOST_NEIGHBOURS:
            self._seen.add(name)
            look = self._look(name)
            try:
                self._tasks.create_task(look, name="look at a neighbour")
            except RuntimeError:  # this node is leaving meanwhile
                look.close()

    async def _look(self, name: str) -> None:
        info = AsyncServiceInfo(SERVICE, name)
        if not await info.async_request(self._opened.zeroconf, ANSWER_SECONDS * 1000) or not info.port:
            self._seen.discard(name)
            return
        # Only hosts of this network are called: an announcement must not aim us at somebody elsewhere.
        hosts = [host for host in info.parsed_addresses() if is_on_link(host)][:MOST_HOSTS]
        if hosts:
            self._found([str(Address(host, info.port)) for host in hosts])
