"""The connections of the status server: how many, and for how long without a request."""

import asyncio

from swarm.services.status.connections import Connections
from swarm.testing.clock import ManualClock
from swarm.testing.loop import run_on_manual_clock


class Inner(asyncio.Protocol):
    """Stands for the protocol of the HTTP library."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.seen.append("made")

    def data_received(self, data: bytes) -> None:
        self.seen.append(data)

    def eof_received(self) -> None:
        self.seen.append("eof")

    def connection_lost(self, exc: Exception | None) -> None:
        self.seen.append("lost")


class Wire(asyncio.Transport):
    """A connection that remembers how it ended."""

    def __init__(self, door: Connections) -> None:
        super().__init__()
        self.ended = ""
        self.protocol = door.accept()
        self.protocol.connection_made(self)

    def abort(self) -> None:
        self.ended = "aborted"
        self.protocol.connection_lost(None)

    def close(self) -> None:
        self.ended = "closed"
        self.protocol.connection_lost(None)


def test_one_that_makes_no_request_is_ended_and_one_that_does_stays() -> None:
    async def main(clock: ManualClock) -> None:
        door = Connections(Inner, limit=5, seconds=10.0)
        silent, busy = Wire(door), Wire(door)
        await asyncio.sleep(9.0)
        silent.protocol.data_received(b"GET /status HTTP/1.1\r\nHost: local")
        door.allowed(busy)
        assert silent.ended == ""
        await asyncio.sleep(1.1)
        assert silent.ended == "aborted"
        await asyncio.sleep(1000.0)
        assert busy.ended == ""
        assert len(door) == 1

    run_on_manual_clock(main)


def test_the_oldest_without_a_request_makes_room() -> None:
    async def main(clock: ManualClock) -> None:
        door = Connections(Inner, limit=3, seconds=10.0)
        busy, first, second = (Wire(door) for _ in range(3))
        door.allowed(busy)
        third = Wire(door)
        assert (busy.ended, first.ended, second.ended, third.ended) == ("", "aborted", "", "")
        door.allowed(second)
        door.allowed(third)
        assert len(door) == 3

    run_on_manual_clock(main)


def test_who_asked_long_ago_makes_room_where_all_have_asked() -> None:
    async def main(clock: ManualClock) -> None:
        door = Connections(Inner, limit=3, seconds=10.0)
        browser, *others = (Wire(door) for _ in range(3))
        for wire in (browser, *others, browser):
            door.allowed(wire)
        late = [Wire(door) for _ in range(3)]
        assert [wire.ended for wire in (*others, *late)] == ["aborted", "", "aborted", "aborted", ""]
        assert browser.ended == ""
        assert len(door) == 3

    run_on_manual_clock(main)


def test_everything_is_passed_on_and_nothing_to_one_that_lost_its_place() -> None:
    async def main(clock: ManualClock) -> None:
        made: list[Inner] = []

        def serve() -> Inner:
            made.append(Inner())
            return made[-1]

        door = Connections(serve, limit=1, seconds=10.0)
        wire = Wire(door)
        wire.protocol.data_received(b"hello")
        wire.protocol.eof_received()
        late = Wire(door)
        wire.protocol.data_received(b"hello")
        late.close()
        assert made[0].seen == ["made", b"hello", "eof", "lost"]
        assert made[1].seen == ["made", "lost"]
        assert len(door) == 0

    run_on_manual_clock(main)
