"""Connections of the status server that come before the HTTP library."""

import asyncio

import pytest

from swarm.services.status.deferred import DeferredProtocol


class Wire(asyncio.Transport):
    """A connection of which is known whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[bool] = []

    def pause_reading(self) -> None:
        self.reads.append(False)

    def resume_reading(self) -> None:
        self.reads.append(True)


class Inner(asyncio.Protocol):
    """Stands for the protocol of the HTTP library."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.seen.append("made")

    def data_received(self, data: bytes) -> None:
        self.seen.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.seen.append("lost")


@pytest.mark.parametrize("is_lost", [False, True])
async def test_what_came_early_is_passed_on_and_nothing_of_one_that_is_gone(is_lost: bool) -> None:
    inner, ready, wire = Inner(), asyncio.Event(), Wire()

    async def make() -> asyncio.Protocol:
        await ready.wait()
        return inner

    async with asyncio.TaskGroup() as tasks:
        protocol = DeferredProtocol(make, tasks=tasks)
        protocol.connection_made(wire)
        protocol.data_received(b"GET ")
        assert wire.reads == [False]
        if is_lost:
            protocol.connection_lost(None)
        ready.set()
    if is_lost:
        assert inner.seen == []
        return
    assert wire.reads == [False, True]
    protocol.data_received(b"/status")
    protocol.connection_lost(None)
    assert inner.seen == ["made", b"GET ", b"/status", "lost"]
