"""TLS 1.3 over any byte transport, driven by ``ssl.SSLObject`` in memory (decision D1).

The transport is anything with the interface of ``asyncio.Transport``: a socket of any event loop, or a pipe
in memory. uvloop's own TLS is as fast, but shows a refused user no reason; and ``start_tls`` can lose bytes.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from swarm.errors import LinkLostError, LocalError, RemoteError, RemoteRefusalError
from swarm.identity.membership import TlsFiles
from swarm.identity.profile import read_leaf
from swarm.ids import PeerId, peer_id
from swarm.net.address import Address
from swarm.net.tls_errors import explain
from swarm.wire.frames import Buffer

RECEIVE_BYTES: Final = 256 * 1024
"""Bytes that one read of a socket may give."""
MAX_UNREAD_BYTES: Final = 512 * 1024
"""Encrypted bytes that may wait to be read before the socket is left alone."""
RECORD_BYTES: Final = 16 * 1024
"""Bytes that one record of TLS may carry (RFC 8446, section 5.1)."""
BULK_READ_BYTES: Final = 64 * 1024
"""Fewer bytes from a socket are given to TLS record by record: the memory that OpenSSL keeps them in never
gets smaller, and a node has many links at rest. More at once are bulk, which that would slow down."""
WRITE_BUFFER_BYTES: Final = 64 * 1024
"""Encrypted bytes that may wait for the socket before the channel stops being writable."""
MIN_RECEIVE_BUFFER_BYTES: Final = 16 * 1024
"""Below this, TCP gets slow on any path."""
_PEM_END: Final = "-----END CERTIFICATE-----"
LINGER_BYTES: Final = 1024 * 1024
"""Bytes that are thrown away while the last words to the other side are under way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsContexts:
    """The TLS configuration of one peer, for connections that it makes and that it takes.

    ``flaw`` is what is wrong with its own certificate, empty where nothing is.
    """

    client: ssl.SSLContext
    server: ssl.SSLContext
    flaw: str


def make_contexts(files: TlsFiles) -> TlsContexts:
    """The contexts of the peer with these files. Reads them, so it belongs before the event loop is busy."""
    return TlsContexts(
        client=_context(files, ssl.PROTOCOL_TLS_CLIENT),
        server=_context(files, ssl.PROTOCOL_TLS_SERVER),
        flaw=_flaw(files),
    )


def _flaw(files: TlsFiles) -> str:
    leaf = files.chain.read_text("ascii").split(_PEM_END)[0] + _PEM_END
    try:
        read_leaf(ssl.PEM_cert_to_DER_cert(leaf))
    except RemoteRefusalError as error:
        return str(error)
    return ""


def _context(files: TlsFiles, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # a peer is known by its key, not by a name
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    context.load_verify_locations(cafile=files.authority)
    context.load_cert_chain(certfile=files.chain, keyfile=files.key)
    return context


def _nothing() -> None:
    pass


class TlsChannel(asyncio.BufferedProtocol):
    """A :class:`swarm.net.channel.ByteChannel`, and the asyncio protocol under it."""

    def __init__(
        self,
        contexts: TlsContexts,
        *,
        dialed: bool,
        scratch: memoryview,
        connected: "Callable[[TlsChannel], None] | None" = None,
    ) -> None:
        self.dialed = dialed
        self.wake: Callable[[], None] = _nothing
        self.writable = True
        self.unread = False
        self._connected = connected
        self._scratch = scratch
        self._flaw = contexts.flaw
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = contexts.client if dialed else contexts.server
        self._ssl = context.wrap_bio(self._incoming, self._outgoing, server_side=not dialed)
        self._reader: Any = self._ssl
        """Typed as it is: reading into a buffer returns how many bytes are in it."""
        self._transport: asyncio.Transport | None = None
        self._remote = Address("?", 0)
        self._peer: PeerId | None = None
        self.ended: RemoteError | None = None
        self._lost: RemoteError | None = None
        self._paused_reading = False
        self._lingered = 0
        self._unread_limit = MAX_UNREAD_BYTES
        self._lingering = False
        self.heard = False
        """Whether a byte has come."""

    # The asyncio protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Bytes can flow."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES, low=0)
        self._remote = remote_address(transport)
        self._tune(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._connected is not None:
            self._connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes of the socket go."""
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes came from the socket."""
        self.heard = True
        if self._lingering:
            self._lingered += nbytes
            if self._lingered > LINGER_BYTES:
                self.abort()
            return
        if nbytes <= RECORD_BYTES or nbytes >= BULK_READ_BYTES:
            self._incoming.write(self._scratch[:nbytes])
            self.unread = True
            self.wake()
        else:
            for begin in range(0, nbytes, RECORD_BYTES):
                self._incoming.write(self._scratch[begin : min(begin + RECORD_BYTES, nbytes)])
                self.unread = True
                self.wake()
        if self.unread and self._incoming.pending >= self._unread_limit and self._transport is not None:
            self._transport.pause_reading()
            self._paused_reading = True

    def eof_received(self) -> bool:
        """The other side sends no more."""
        self._lose(LinkLostError("closed the connection"))
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone."""
        cause = f" ({reason_of(exc)})" if isinstance(exc, OSError) else ""
        lost = self._lose(LinkLostError(f"was lost{cause}"))
        self._transport = None
        self._end(lost)
        self.wake()

    def pause_writing(self) -> None:
        """The socket takes no more."""
        self.writable = False

    def resume_writing(self) -> None:
        """The socket takes more."""
        self.writable = self.ended is None
        self.wake()

    # The byte channel.

    @property
    def remote(self) -> Address:
        """The address of the far end."""
        return self._remote

    @property
    def certificate(self) -> bytes:
        """The certificate of the far end (DER); raises LocalError before the handshake."""
        certificate = self._ssl.getpeercert(binary_form=True)
        if certificate is None:
            raise LocalError("a channel without a certificate")
        return certificate

    @property
    def peer(self) -> PeerId:
        """The peer at the far end, as its certificate says; raises LocalError before the handshake."""
        if self._peer is None:
            raise LocalError("a channel's peer is not known before the handshake")
        return self._peer

    @property
    def unsent(self) -> int:
        """Encrypted bytes that wait for the socket."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    async def wait_heard(self) -> None:
        """Return when a byte has come, or none can come any more. Has no deadline itself."""
        while not self.heard and self._lost is None:
            await self._changed()

    async def handshake(self) -> None:
        """Do the TLS handshake; raises a RemoteError with a sentence. Has no deadline itself.

        Reads the certificate too, and refuses one that TLS accepts but no peer has.
        """
        while not self._handshaken():
            await self._changed()
        self._peer = peer_id(read_leaf(self.certificate).public_key)

    def receive_into(self, buffer: memoryview) -> int:
        """Decrypt into ``buffer`` until it is full or nothing is left to decrypt; one record if it is small.

        The header before a payload has a record of its own, so the payload can then go where it belongs. What
        is left is known before it is read, because the exception for nothing is dear (tried). What TLS itself
        answers, a new key to a new key, goes out before what is sent next (RFC 8446, section 4.6.3).
        """
        if not self.unread:
            return 0
        incoming, count, size = self._incoming, 0, len(buffer)
        try:
            got = count = self._reader.read(size, buffer)
            while size >= RECORD_BYTES and got and count < size and (incoming.pending or self._lost):
                got = self._reader.read(size - count, buffer[count:])
                count += got
            if not got:
                raise ssl.SSLZeroReturnError
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self._fail(error)
        self.unread = (
            incoming.pending > 0 or self._lost is not None or (count == size and self._ssl.pending() > 0)
        )
        if self._paused_reading:
            self._resume_reading()
        return count

    def send(self, head: Buffer, body: Buffer) -> None:
        """Encrypt ``head`` and ``body``, and give them to the socket.

        A long head goes record by record: what OpenSSL keeps it in never gets smaller again.
        """
        if self.ended is not None:
            return
        try:
            while len(head) > RECORD_BYTES:
                self._ssl.write(head[:RECORD_BYTES])
                self._flush()
                head = memoryview(head)[RECORD_BYTES:]
            self._ssl.write(head)
            if body:
                self._ssl.write(body)
        except ssl.SSLError as error:
            self._fail(error)
        transport = self._transport
        if transport is not None:
            transport.write(self._outgoing.read())

    def limit_unsent(self, limit: int) -> None:
        """TCP_NOTSENT_LOWAT, where the system has it."""
        option = getattr(socket, "TCP_NOTSENT_LOWAT", None)
        if option is not None:
            self._tune(socket.IPPROTO_TCP, option, limit)

    def limit_unread(self, limit: int) -> None:
        """SO_RCVBUF, which some systems double; and when reading the socket pauses."""
        self._unread_limit = min(limit // 2, MAX_UNREAD_BYTES)
        self._tune(socket.SOL_SOCKET, socket.SO_RCVBUF, max(limit // 2, MIN_RECEIVE_BUFFER_BYTES))

    async def aclose(self, seconds: float) -> None:
        """Send what waits, and wait until the other side has hung up too: it may be reading the last words.

        A socket closed with bytes unread makes some systems throw away what they had for the other side.
        Returns when the socket is gone.
        """
        try:
            if seconds > 0 and self._transport is not None and self._lost is None:
                await self._linger(self._transport, seconds)
        finally:
            self.abort()
        while self._transport is not None:
            await self._changed()

    def abort(self) -> None:
        """Drop the connection at once."""
        self._end(LinkLostError("was hung up on"))
        if self._transport is not None:
            self._transport.abort()

    # Inside.

    def _handshaken(self) -> bool:
        try:
            self._ssl.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            raise self._fail(error) from None
        self._flush()
        return True

    def _resume_reading(self) -> None:
        """Read the socket again, where little is left of what came."""
        if self._incoming.pending < self._unread_limit and self._transport is not None:
            self._paused_reading = False
            self._transport.resume_reading()

    async def _linger(self, transport: asyncio.Transport, seconds: float) -> None:
        self._lingering = True
        self._end(LinkLostError("was hung up on"))
        self._paused_reading = False
        transport.resume_reading()
        if transport.can_write_eof():
            transport.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._lost is None:
                    await self._changed()

    async def _changed(self) -> None:
        changed = asyncio.Event()
        self.wake = changed.set
        await changed.wait()

    def _lose(self, error: RemoteError) -> RemoteError:
        """No more bytes come; returns why: the first reason stays."""
        self._lost = self._lost or error
        self._incoming.write_eof()  # what is read then ends in an error, once all that came is read
        self.unread = True
        self.wake()
        return self._lost

    def _end(self, error: RemoteError) -> RemoteError:
        """No more bytes come or go; returns why: the first reason stays."""
        self.ended = self.ended or error
        self.unread, self.writable = True, False
        return self.ended

    def _fail(self, error: ssl.SSLError) -> RemoteError:
        """TLS cannot go on; what it says to the other side about that still goes out. Returns why."""
        self._flush()
        eof = isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError)
        lost = self._lost if eof else None
        return self._end(lost or explain(error, flaw=self._flaw))

    def _flush(self) -> None:
        if self._transport is not None and self._outgoing.pending:
            self._transport.write(self._outgoing.read())

    def _tune(self, level: int, option: int, value: int) -> None:
        """Set a socket option; a transport without a socket, or a system without the option, does without."""
        sock = self._transport.get_extra_info("socket") if self._transport is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(level, option, value)


class ChannelFactory:
    """Makes the channels of one peer. They share the memory that sockets are read into: they take turns."""

    def __init__(self, files: TlsFiles) -> None:
        self.contexts = make_contexts(files)
        self._scratch = memoryview(bytearray(RECEIVE_BYTES))

    def dialed(self) -> TlsChannel:
        """A channel for a call that this peer makes."""
        return TlsChannel(self.contexts, dialed=True, scratch=self._scratch)

    def listening(self, connected: Callable[[TlsChannel], None]) -> Callable[[], TlsChannel]:
        """What makes channels for calls that others make; ``connected`` is told of each."""
        return lambda: TlsChannel(self.contexts, dialed=False, scratch=self._scratch, connected=connected)


def remote_address(transport: asyncio.BaseTransport) -> Address:
    """The address of the far end of ``transport``; host ``?`` where it is gone already."""
    peer: Any = transport.get_extra_info("peername")
    return Address(str(peer[0]), int(peer[1])) if peer else Address("?", 0)


def reason_of(error: OSError) -> str:
    """The system's words for ``error``, without its number."""
    return (error.strerror or str(error) or type(error).__name__).lower()
