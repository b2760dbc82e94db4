"""Knocking: a datagram from a socket that nobody ever sent to shows a node that strangers reach it.

::

    A -> B    Request(AskKnock)    from a contact, whose address has echoed a cookie
    B -> A    Reply(Pong)
    B' -> A   Knock                from another port of B's, once; A answers nothing to it

B knocks nowhere but at the address that the request came from, with less than it was asked with.
"""

import asyncio
import random
from typing import Final

from swarm.dht.calls import Target
from swarm.dht.endpoint import Network
from swarm.dht.limits import MAX_KNOCKS
from swarm.dht.messages import AskKnock, Knock
from swarm.dht.node import Node
from swarm.dht.table import Contact
from swarm.errors import FailureError, RemoteTimeoutError
from swarm.log import get_log

_log = get_log(__name__)
_ASKED: Final = 2
"""Contacts that are asked at a time: a datagram may be lost."""


class Knocking:
    """One node's asking for knocks, and giving them. ``hosts`` are those that the node listens on."""

    def __init__(self, node: Node, *, network: Network, hosts: tuple[str, ...]) -> None:
        self._node = node
        self._network = network
        self._hosts = hosts
        self._announced = False
        self._wanted: asyncio.Queue[Contact] = asyncio.Queue(MAX_KNOCKS)
        node.answering.on_ask_knock = self._on_ask

    def _on_ask(self, asker: Contact) -> None:
        if not self._wanted.full():
            self._wanted.put_nowait(asker)

    async def give(self) -> None:
        """For ever: knock at those who asked. The port is taken when the first does, and has one use."""
        asker = await self._wanted.get()
        try:
            endpoint = await self._network.open(self._hosts, 0, lambda _data, _source: None)
        except FailureError as error:
            _log.warning("no port to knock from", reason=error)
            return
        try:
            while True:
                endpoint.send(self._node.protocol.sealed(Knock(), asker.envelope), asker.address)
                asker = await self._wanted.get()
        finally:
            endpoint.close()

    async def ask(self) -> None:
        """Ask contacts beyond the local network to knock, where it is not known that strangers reach us.

        Those closest to us hear when it has become known: they list us from then on.
        """
        reachability = self._node.reachability
        newly, self._announced = reachability.is_reached and not self._announced, reachability.is_reached
        if newly:
            await self._node.closest(self._node.id)
        if not reachability.wants_proof:
            return
        beyond = [one for one in self._node.table.contacts() if not one.silences and not one.address.is_local]
        async with asyncio.TaskGroup() as group:
            for contact in random.sample(beyond, min(_ASKED, len(beyond))):
                group.create_task(self._ask(contact))

    async def _ask(self, contact: Contact) -> None:
        try:
            await self._node.protocol.calls.call(Target(node=contact.id, address=contact.address), AskKnock())
        except RemoteTimeoutError:
            # The table has counted the silence.
            return
