"""The connections of the status server: bounded in number, and each with a deadline for its first request.

The HTTP library has neither; a connection that never sends a whole request would stay for ever, and be asked
for a token never.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

MAX_CONNECTIONS: Final = 64
"""Connections at a time; a browser has up to six."""
REQUEST_SECONDS: Final = 10.0
"""How long a connection may take to make a request that is allowed."""


class Connections:
    """Connections made by ``serve``, which gives the protocol of each.

    Where there are too many, one that has made no allowed request yet makes room for a new one, else the one
    that made its last the longest ago: it may be reading none of the answers.
    """

    def __init__(
        self,
        serve: Callable[[], asyncio.Protocol],
        *,
        limit: int = MAX_CONNECTIONS,
        seconds: float = REQUEST_SECONDS,
    ) -> None:
        self._serve = serve
        self._limit = limit
        self._seconds = seconds
        self._open: dict[asyncio.BaseTransport, None] = {}
        """In the order of their last allowed requests."""
        self._fresh: dict[asyncio.BaseTransport, asyncio.TimerHandle] = {}
        """Those without an allowed request, the oldest first, and what ends them."""

    def __len__(self) -> int:
        return len(self._open)

    def accept(self) -> asyncio.Protocol:
        """The protocol of one more connection."""
        return _Watched(self._serve(), self)

    def allowed(self, transport: asyncio.BaseTransport | None) -> None:
        """A request on ``transport`` was allowed: it may stay."""
        if transport in self._open:
            self._settle(transport)
            self._open[transport] = self._open.pop(transport)

    def enter(self, transport: asyncio.BaseTransport) -> None:
        """A connection is made, and another one ends where there is no place for both."""
        if len(self._open) >= self._limit:
            self._drop(next(iter(self._fresh or self._open)))
        self._open[transport] = None
        loop = asyncio.get_running_loop()
        self._fresh[transport] = loop.call_later(self._seconds, self._drop, transport)

    def leave(self, transport: asyncio.BaseTransport) -> None:
        """A connection is gone."""
        self._open.pop(transport, None)
        self._settle(transport)

    def _settle(self, transport: asyncio.BaseTransport) -> None:
        timer = self._fresh.pop(transport, None)
        if timer is not None:
            timer.cancel()

    def _drop(self, transport: asyncio.BaseTransport) -> None:
        self.leave(transport)
        cast("asyncio.Transport", transport).abort()  # uvloop's is one without saying so


class _Watched(asyncio.Protocol):
    """Passes everything on to the protocol of the HTTP library, until the connection loses its place."""

    def __init__(self, inner: asyncio.Protocol, connections: Connections) -> None:
        self._inner = inner
        self._connections = connections
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._connections.enter(transport)
        self._transport = transport
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is not None:
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._transport is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            self._connections.leave(transport)
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
