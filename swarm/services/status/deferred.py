"""A connection made before there was a protocol for it: it is read once, and on when there is one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast


class DeferredProtocol(asyncio.Protocol):
    """Passes everything on to the protocol that ``make`` gives in time, a task in ``tasks``."""

    def __init__(self, make: Callable[[], Awaitable[asyncio.Protocol]], *, tasks: asyncio.TaskGroup) -> None:
        self._make = make
        self._tasks = tasks
        self._transport: asyncio.Transport | None = None
        self._inner: asyncio.Protocol | None = None
        self._early = b""
        """What one read gave before; uvloop begins to read whatever ``connection_made`` says."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for a protocol."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one without saying so
        self._tasks.create_task(self._begin(), name="status connection")

    async def _begin(self) -> None:
        inner = await self._make()
        if self._transport is not None:
            self._inner = inner
            inner.connection_made(self._transport)
            if self._early:
                self._transport.resume_reading()
                inner.data_received(self._early)
                self._early = b""

    def data_received(self, data: bytes) -> None:
        """See ``asyncio.Protocol``."""
        if self._inner is not None:
            self._inner.data_received(data)
        elif self._transport is not None:
            self._early += data
            self._transport.pause_reading()

    def eof_received(self) -> bool | None:
        """See ``asyncio.Protocol``."""
        return self._inner.eof_received() if self._inner is not None else None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone, perhaps before its protocol was there."""
        self._transport = None
        if self._inner is not None:
            self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """See ``asyncio.BaseProtocol``."""
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """See ``asyncio.BaseProtocol``."""
        if self._inner is not None:
            self._inner.resume_writing()
