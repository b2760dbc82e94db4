"""The in-memory network: bytes in order, bounded windows, latency, and faults that tell or do not tell."""

import asyncio

import pytest

from swarm.errors import FailureError, LinkLostError
from swarm.net.address import Address
from swarm.net.memory import SEGMENT_BYTES, WINDOW_BYTES, MemoryNetwork
from swarm.testing.clock import ManualClock
from swarm.testing.loop import run_on_manual_clock

BOB = Address("bob", 1)


class Endpoint(asyncio.Protocol):
    """Remembers what happened to it."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.events: list[str] = []
        self.keep_open = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keep_open

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append(f"lost {type(exc).__name__}")

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")


class Buffered(asyncio.BufferedProtocol):
    """Takes bytes in small pieces."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.scratch = bytearray(100)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.scratch

    def buffer_updated(self, nbytes: int) -> None:
        self.data += self.scratch[:nbytes]


async def connected(network: MemoryNetwork) -> tuple[Endpoint, Endpoint]:
    near, far = Endpoint(), Endpoint()
    await network.host("bob").listen("", 1, lambda: far)
    await network.host("alice").connect(BOB, lambda: near)
    return near, far


def test_bytes_arrive_in_order_after_the_latency() -> None:
    async def main(clock: ManualClock) -> None:
        near, far = await connected(MemoryNetwork(latency=0.5))
        assert clock.elapsed() == 1.0, "a round trip to connect"
        data = bytes(range(256)) * 2000
        for start in range(0, len(data), 999):
            near.transport.write(data[start : start + 999])
        far.transport.write(b"back")
        await asyncio.sleep(0.49)
        assert far.data == near.data == b""
        await asyncio.sleep(5.0)
        assert bytes(far.data) == data
        assert near.data == b"back"
        assert near.transport.get_extra_info("peername") == ("bob", 1)
        assert far.transport.get_extra_info("peername")[0] == "alice"

    run_on_manual_clock(main)


def test_a_reader_that_stops_stops_the_writer() -> None:
    async def main(_: ManualClock) -> None:
        near, far = await connected(MemoryNetwork())
        far.transport.pause_reading()
        near.transport.write(bytes(2 * WINDOW_BYTES))
        assert near.events == ["pause"]
        assert near.transport.get_write_buffer_size() == WINDOW_BYTES
        await asyncio.sleep(1.0)
        assert far.data == b""
        far.transport.resume_reading()
        await asyncio.sleep(1.0)
        assert len(far.data) == 2 * WINDOW_BYTES
        assert near.events == ["pause", "resume"]
        assert near.transport.get_write_buffer_size() == 0

    run_on_manual_clock(main)


def test_a_buffered_protocol_gets_what_fits() -> None:
    async def main(_: ManualClock) -> None:
        network = MemoryNetwork()
        near, far = Endpoint(), Buffered()
        await network.host("bob").listen("bob", 1, lambda: far)
        await network.host("alice").connect(BOB, lambda: near)
        near.transport.write(bytes(range(250)))
        await asyncio.sleep(0.1)
        assert bytes(far.data) == bytes(range(250))

    run_on_manual_clock(main)


def test_an_end_of_file_comes_after_the_bytes_and_leaves_the_way_back_open() -> None:
    async def main(_: ManualClock) -> None:
        near, far = await connected(MemoryNetwork(latency=0.1))
        far.keep_open = True
        near.transport.write(b"last")
        near.transport.write_eof()
        near.transport.write(b"too late")
        await asyncio.sleep(1.0)
        assert (far.data, far.events) == (b"last", ["eof"])
        far.transport.write(b"answer")
        await asyncio.sleep(1.0)
        assert near.data == b"answer"

    run_on_manual_clock(main)


def test_close_lets_what_was_written_arrive() -> None:
    async def main(_: ManualClock) -> None:
        network = MemoryNetwork(latency=0.1)
        near, far = await connected(network)
        near.transport.write(bytes(SEGMENT_BYTES + 1))
        near.transport.close()
        await asyncio.sleep(1.0)
        assert len(far.data) == SEGMENT_BYTES + 1
        assert near.events == ["lost NoneType"]
        assert far.events[0] == "eof"
        assert network.connections() == ()

    run_on_manual_clock(main)


def test_abort_is_a_reset_after_what_is_under_way() -> None:
    async def main(_: ManualClock) -> None:
        near, far = await connected(MemoryNetwork(latency=0.1))
        near.transport.write(b"under way")
        near.transport.abort()
        assert near.transport.is_closing()
        await asyncio.sleep(1.0)
        assert (far.data, far.events) == (b"under way", ["lost ConnectionResetError"])

    run_on_manual_clock(main)


def test_a_cut_is_told_to_both_and_loses_what_is_under_way() -> None:
    async def main(_: ManualClock) -> None:
        network = MemoryNetwork(latency=0.1)
        near, far = await connected(network)
        near.transport.write(b"lost")
        (connection,) = network.connections("alice")
        connection.cut()
        await asyncio.sleep(1.0)
        assert near.events == far.events == ["lost ConnectionResetError"]
        assert far.data == b""

    run_on_manual_clock(main)


def test_a_frozen_connection_tells_nobody_and_thaws_whole() -> None:
    async def main(_: ManualClock) -> None:
        network = MemoryNetwork()
        near, far = await connected(network)
        (connection,) = network.connections("alice", "bob")
        connection.freeze()
        near.transport.write(b"held up")
        await asyncio.sleep(100.0)
        assert (far.data, far.events, near.events) == (b"", [], [])
        connection.thaw()
        assert far.data == b"held up"

    run_on_manual_clock(main)


def test_addresses_are_taken_free_or_nobodys() -> None:
    async def main(_: ManualClock) -> None:
        network = MemoryNetwork()
        bob = network.host("bob")
        listener = await bob.listen("", 1, Endpoint)
        assert listener.addresses == (BOB,)
        with pytest.raises(FailureError, match="bob:1 is taken by another program: give --listen"):
            await bob.listen("", 1, Endpoint)
        with pytest.raises(FailureError, match="carol is no address of this machine"):
            await bob.listen("carol", 1, Endpoint)
        first, second = [await bob.listen("", 0, Endpoint) for _ in range(2)]
        assert first.addresses != second.addresses
        listener.close()
        with pytest.raises(LinkLostError, match="does not listen"):
            await network.host("alice").connect(BOB, Endpoint)

    run_on_manual_clock(main)
