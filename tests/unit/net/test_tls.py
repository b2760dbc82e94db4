"""TLS channels: the configuration, and what happens around the handshake. Refusals: tests/integration."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import LinkLostError, LocalError
from swarm.net.address import Address
from swarm.net.memory import MemoryNetwork
from swarm.net.tls import RECORD_BYTES, ChannelFactory, TlsChannel
from swarm.testing.pools import Pools


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Pools:
    return Pools(tmp_path_factory.mktemp("pools"))


@pytest.fixture
def factory(pools: Pools, tmp_path: Path) -> ChannelFactory:
    identity = pools.identity()
    identity.save(tmp_path)
    return ChannelFactory(identity.tls_files(tmp_path))


async def joined(
    network: MemoryNetwork, near: ChannelFactory, far: ChannelFactory
) -> tuple[TlsChannel, TlsChannel]:
    """Two ends of a connection, before the handshake."""
    called: list[TlsChannel] = []
    await network.host("far").listen("", 1, far.listening(called.append))
    channel = near.dialed()
    await network.host("near").connect(Address("far", 1), lambda: channel)
    return channel, called[0]


async def shaken(near: ChannelFactory, far: ChannelFactory) -> tuple[TlsChannel, TlsChannel]:
    """Two ends of a connection, after the handshake."""
    channels = await joined(MemoryNetwork(), near, far)
    async with asyncio.timeout(20.0):
        await asyncio.gather(*(channel.handshake() for channel in channels))
    return channels


async def receive(channel: TlsChannel, size: int) -> bytes:
    """``size`` bytes, or what came before the end."""
    data = memoryview(bytearray(size))
    count = 0
    ready = asyncio.Event()
    channel.wake = ready.set
    async with asyncio.timeout(20.0):
        while count < size:
            ready.clear()
            got = channel.receive_into(data[count:])
            count += got
            if not got:
                if channel.ended is not None:
                    break
                await ready.wait()
    return bytes(data[:count])


RECORD_OVERHEAD_BYTES = 5 + 1 + 16
"""Header, content type and tag (RFC 8446, section 5.2, with the suites of TLS 1.3)."""


class Transcript:
    """Watches how many bytes go through the memory of a channel at a time."""

    def __init__(self, channel: TlsChannel) -> None:
        self.most = 0
        for name in ("_incoming", "_outgoing"):
            setattr(channel, name, Watched(getattr(channel, name), self))


class Watched:
    """A ``ssl.MemoryBIO`` whose largest content is noted."""

    def __init__(self, inner: ssl.MemoryBIO, transcript: Transcript) -> None:
        self._inner = inner
        self._transcript = transcript

    def __getattr__(self, name: str) -> Any:
        self._transcript.most = max(self._transcript.most, self._inner.pending)
        return getattr(self._inner, name)

    def write(self, data: memoryview) -> int:
        """Put ``data`` in."""
        count = self._inner.write(data)
        self._transcript.most = max(self._transcript.most, self._inner.pending)
        return count


def test_only_tls_13_with_certificates_under_strict_rules(factory: ChannelFactory) -> None:
    for context in (factory.contexts.client, factory.contexts.server):
        assert context.minimum_version == context.maximum_version == ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.verify_flags & ssl.VerifyFlags.VERIFY_X509_STRICT
        assert context.options & ssl.OP_NO_TICKET
        assert context.options & ssl.OP_NO_COMPRESSION
        assert not context.check_hostname
        assert len(context.get_ca_certs()) == 1
    assert factory.contexts.server.num_tickets == 0


async def test_each_end_knows_the_other_by_its_key(
    factory: ChannelFactory, pools: Pools, tmp_path: Path
) -> None:
    other = pools.identity()
    other.save(tmp_path / "other")
    far_factory = ChannelFactory(other.tls_files(tmp_path / "other"))
    near, far = await joined(MemoryNetwork(), factory, far_factory)
    with pytest.raises(LocalError, match="not known before the handshake"):
        _ = near.peer
    await asyncio.gather(near.handshake(), far.handshake())
    assert near.peer == other.peer
    assert near.certificate == other.leaf
    assert near.remote == Address("far", 1)
    assert (near.dialed, far.dialed) == (True, False)
    near.abort()


async def test_bytes_cross_both_ways_and_are_encrypted(factory: ChannelFactory) -> None:
    near, far = await shaken(factory, factory)
    data = bytes(range(256)) * 3000
    near.send(b"head", memoryview(data))
    far.send(b"answer", b"")
    assert await receive(far, 4 + len(data)) == b"head" + data
    assert await receive(near, 6) == b"answer"
    near.abort()


async def test_long_control_leaves_little_memory_behind(factory: ChannelFactory) -> None:
    """OpenSSL's buffers have at least the size of the most that ever waited in them at a time."""
    near, far = await shaken(factory, factory)
    transcripts = Transcript(near), Transcript(far)
    data = bytes(range(256)) * 250
    came, scratch, whole = bytearray(), memoryview(bytearray(len(data))), asyncio.Event()

    def take() -> None:
        while count := far.receive_into(scratch):
            came.extend(scratch[:count])
        if len(came) == len(data):
            whole.set()

    far.wake = take
    near.send(data, b"")
    async with asyncio.timeout(20.0):
        await whole.wait()
    assert came == data
    assert max(transcript.most for transcript in transcripts) <= RECORD_BYTES + RECORD_OVERHEAD_BYTES
    near.abort()


@pytest.mark.parametrize("records", [1, 3, 5])
async def test_all_of_what_a_socket_gives_at_once_is_read_before_the_next(
    factory: ChannelFactory, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    """Whether OpenSSL is given it record by record, or as bulk."""
    near, far = await shaken(factory, factory)
    sealed, came, data = bytearray(), bytearray(), bytes(range(256)) * (records * RECORD_BYTES // 256)
    monkeypatch.setattr(near._transport, "write", sealed.extend)
    near.send(data, b"")
    scratch = memoryview(bytearray(1000))

    def take() -> None:
        while count := far.receive_into(scratch):
            came.extend(scratch[:count])

    far.wake = take
    far.get_buffer(-1)[: len(sealed)] = sealed
    far.buffer_updated(len(sealed))
    assert came == data
    assert not far.unread
    near.abort()


async def test_what_was_sent_before_a_close_arrives_and_then_the_end(factory: ChannelFactory) -> None:
    near, far = await shaken(factory, factory)
    near.send(b"last words", b"")
    closing = asyncio.gather(near.aclose(5.0))
    assert await receive(far, 100) == b"last words"
    assert str(far.ended) == "closed the connection"
    await far.aclose(0.0)
    await closing
    near.send(b"too late", b"")
    assert not near.writable
    assert str(near.ended) == "was hung up on"


async def test_a_lost_connection_is_seen_after_the_bytes_that_came_before(factory: ChannelFactory) -> None:
    network = MemoryNetwork()
    near, far = await joined(network, factory, factory)
    await asyncio.gather(near.handshake(), far.handshake())
    near.send(b"before", b"")
    assert await receive(far, 6) == b"before"
    network.connections()[0].cut()
    assert await receive(far, 1) == b""
    assert isinstance(far.ended, LinkLostError)
    assert str(far.ended) == "was lost (connection reset by peer)"
    assert far.unsent == 0


async def test_a_connection_that_ends_in_the_handshake_says_so(factory: ChannelFactory) -> None:
    network = MemoryNetwork()
    near, far = await joined(network, factory, factory)
    network.connections()[0].cut()
    for channel in (near, far):
        with pytest.raises(LinkLostError, match="was lost"):
            await channel.handshake()


async def test_a_forged_byte_ends_the_channel(factory: ChannelFactory) -> None:
    near, far = await shaken(factory, factory)
    near.send(b"hello", b"")
    assert await receive(far, 5) == b"hello"
    transport = near._transport
    assert transport is not None
    transport.write(b"\x17\x03\x03\x00\x20" + bytes(32))
    assert await receive(far, 1) == b""
    assert "fails in TLS" in str(far.ended) or "does not speak TLS" in str(far.ended)
    near.abort()
    far.abort()


async def test_a_transport_without_a_socket_has_nothing_to_tune(factory: ChannelFactory) -> None:
    near, far = await shaken(factory, factory)
    near.limit_unsent(16_384)
    near.abort()
    far.abort()
