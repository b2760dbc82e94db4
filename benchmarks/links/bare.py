"""What a link is measured against: an ``asyncio.Protocol`` on the event loop's own TLS, and nothing more.

The certificates and the TLS configuration are those of links. The receiver counts the bytes and drops them;
a link's receiver also has them whole, in memory of their own.
"""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final, TypeVar, cast

from swarm.identity.membership import Identity
from swarm.net.address import Address
from swarm.net.tls import TlsContexts, make_contexts
from swarm.wire.frames import Buffer

VIEW_BYTES: Final = 256 * 1024
"""Bytes given to the transport at a time."""
SMALL_BYTES: Final = 68
"""Bytes of a small message: as many as the question that a link is asked takes, header included."""
_LENGTH: Final = struct.Struct(">Q")
_DONE: Final = b"\0"


class _Connection(asyncio.Protocol):
    """What both ends share: room to write, and the end."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.room = asyncio.Event()
        self.room.set()
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The handshake is done."""
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has ended."""
        self.closed.set_result(None)

    def pause_writing(self) -> None:
        """The transport takes no more."""
        self.room.clear()

    def resume_writing(self) -> None:
        """The transport takes more."""
        self.room.set()


_Kind = TypeVar("_Kind", bound=_Connection)


class Counter(_Connection):
    """Takes transfers: eight bytes that say how many follow, then those; answers each with one byte."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 0

    def data_received(self, data: bytes) -> None:
        """More bytes; a transfer begins in a piece of its own, since the one before was answered first."""
        if not self._left:
            (self._left,) = _LENGTH.unpack_from(data)
            self._left += _LENGTH.size
        self._left -= len(data)
        if not self._left:
            self.transport.write(_DONE)


class Echo(_Connection):
    """Sends back what comes."""

    def data_received(self, data: bytes) -> None:
        """Bytes to send back."""
        self.transport.write(data)


class Writer(_Connection):
    """The calling end of a :class:`Counter`."""

    def __init__(self) -> None:
        super().__init__()
        self._answered = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """All has come."""
        self._answered.set()

    async def stream(self, payload: Buffer, *, times: int) -> None:
        """Send ``payload`` so many times, in views."""
        whole = memoryview(payload)
        self._answered.clear()
        self.transport.write(_LENGTH.pack(times * len(whole)))
        for _ in range(times):
            for start in range(0, len(whole), VIEW_BYTES):
                self.transport.write(whole[start : start + VIEW_BYTES])
                if not self.room.is_set():
                    await self.room.wait()
        await self._answered.wait()


class Chatterer(_Connection):
    """The calling end of an :class:`Echo`."""

    def __init__(self) -> None:
        super().__init__()
        self._left = 0
        self._done = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        """The echo."""
        self._left -= 1
        if self._left:
            self.transport.write(data)
        else:
            self._done.set()

    async def chatter(self, *, times: int) -> None:
        """Exchange so many small messages, one after the other, from within the loop's callbacks."""
        self._left = times
        self._done.clear()
        self.transport.write(bytes(SMALL_BYTES))
        await self._done.wait()


@contextlib.asynccontextmanager
async def listening(folder: Path, kind: type[_Connection]) -> AsyncIterator[Address]:
    """Listens with the certificate in ``folder``; gives the address."""
    server = await asyncio.get_running_loop().create_server(
        kind, "127.0.0.1", 0, ssl=_contexts(folder).server
    )
    try:
        yield Address(*server.sockets[0].getsockname()[:2])
    finally:
        server.close()


@contextlib.asynccontextmanager
async def connected(folder: Path, address: str, kind: type[_Kind]) -> AsyncIterator[_Kind]:
    """A connection of this ``kind`` with the certificate in ``folder``."""
    where = Address.parse(address)
    _, connection = await asyncio.get_running_loop().create_connection(
        kind, where.host, where.port, ssl=_contexts(folder).client, server_hostname=""
    )
    try:
        yield connection
    finally:
        connection.transport.abort()
        await connection.closed


def _contexts(folder: Path) -> TlsContexts:
    return make_contexts(Identity.load(folder).tls_files(folder))
