"""Nodes of kademlia as it is, in this process, each with a socket of its own on loopback."""

from typing import Any

from kademlia.network import Server

from benchmarks.dhts.contest import Outcome, timed
from benchmarks.dhts.ours import LOOPBACK

VALUE = "v" * 250
"""As long as a record of ours."""


class Bare:
    """A contestant."""

    def __init__(self) -> None:
        self._servers: dict[int, Any] = {}

    async def join(self, number: int) -> Outcome:
        """Start a server and bootstrap from the first."""
        server = self._servers[number] = Server()
        await server.listen(0, LOOPBACK)
        return await timed(self._enter(server, number))

    async def _enter(self, server: Any, number: int) -> bool:
        if number:
            await server.bootstrap([self._servers[0].transport.get_extra_info("sockname")[:2]])
        return not number or bool(server.bootstrappable_neighbors())

    async def set(self, number: int) -> Outcome:
        """Set a value under the node's key."""
        return await timed(self._set(number))

    async def _set(self, number: int) -> bool:
        try:
            return bool(await self._servers[number].set(f"record {number}", VALUE))
        except ValueError:  # all known nodes are gone
            return False

    async def get(self, number: int, other: int) -> Outcome:
        """Get the value of another node."""
        return await timed(self._get(number, other))

    async def _get(self, number: int, other: int) -> bool:
        return bool(await self._servers[number].get(f"record {other}") == VALUE)

    async def stop(self, number: int) -> None:
        """Close the socket."""
        self._servers[number].stop()

    async def aclose(self) -> None:
        """Close all that is open."""
        for server in self._servers.values():
            server.stop()
