"""The HTTP server of a node: where it listens, and what it takes in hand once somebody calls.

The server is an auxiliary service: a fault in an answer becomes status 500 and a log line, never more.
"""

import asyncio
import importlib
import os
from typing import TYPE_CHECKING, Self

from swarm.errors import FailureError, LocalError
from swarm.services.status.access import Access
from swarm.services.status.connections import Connections
from swarm.services.status.deferred import DeferredProtocol
from swarm.services.status.source import StatusSource

if TYPE_CHECKING:
    from aiohttp import web


class StatusServer:
    """Serves ``source`` on ``host``:``port`` (0: a free port) from ``__aenter__`` to ``__aexit__``.

    Entering raises FailureError where the address cannot be had.
    """

    def __init__(self, source: StatusSource, *, host: str, port: int, access: Access) -> None:
        self._source = source
        self._host = host
        self._port = port
        self._access = access
        self._tasks = asyncio.TaskGroup()
        self._connections = Connections(self._serve)
        self._opening = asyncio.Lock()
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        try:
            self._listener = await asyncio.get_running_loop().create_server(
                self._connections.accept, self._host or None, self._port
            )
        except OSError as error:
            raise FailureError(
                f"the status address {self._host}:{self._port} cannot be used "
                f"({_cause(error)}): give another one with --status HOST:PORT"
            ) from error
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            await self._tasks.__aexit__(None, None, None)
            if self._runner is not None:
                await self._runner.cleanup()
                self._runner = None

    @property
    def url(self) -> str:
        """Where a program on this machine reaches the server; raises LocalError outside its life."""
        if self._listener is None:
            raise LocalError("the status server is not running")
        addresses = [sock.getsockname() for sock in self._listener.sockets]
        host, port = next((a for a in addresses if ":" not in a[0]), addresses[0])[:2]
        if host in {"0.0.0.0", "::"}:  # noqa: S104 - compared, not bound
            host = "127.0.0.1" if host == "0.0.0.0" else "::1"  # noqa: S104
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def _serve(self) -> asyncio.Protocol:
        """The protocol of one more connection."""
        if self._runner is None or self._runner.server is None:
            return DeferredProtocol(self._serve_late, tasks=self._tasks)
        return self._runner.server()

    async def _serve_late(self) -> asyncio.Protocol:
        """The same, once the HTTP library is there."""
        async with self._opening:
            if self._runner is None:
                self._runner = await self._open()
        if self._runner.server is None:
            raise LocalError("the HTTP library has made no server")
        return self._runner.server()

    async def _open(self) -> "web.AppRunner":
        await asyncio.to_thread(importlib.import_module, "swarm.services.status.pages")
        from swarm.services.status.pages import StatusPages  # noqa: PLC0415 - loaded by now

        pages = StatusPages(self._source, self._access, allowed=self._connections.allowed)
        return await pages.runner()


def _cause(error: OSError) -> str:
    """The system's own words: asyncio's repeat the address."""
    return os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
