"""Joining: how many peers are called when the DHT names many."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from swarm.clock import Clock, SystemClock
from swarm.errors import FailureError
from swarm.ids import PeerId
from swarm.services import joining as module
from swarm.services.joining import CALLS_AT_ONCE, LOOK_SECONDS, MOST_CALLS, Joining
from swarm.testing.clock import ManualClock
from swarm.testing.loop import run_on_manual_clock


class Silent:
    """A pool and a DHT in one: many peers are named, and none answers until told to."""

    def __init__(self, peers: int) -> None:
        self.records = [
            SimpleNamespace(peer=PeerId(f"{number:032}"), addresses=("192.0.2.1:1",))
            for number in range(peers)
        ]
        self.calling = self.most = self.calls = self.looks = 0
        self.looked = asyncio.Event()

    async def find(self) -> list[Any]:
        self.looks += 1
        if self.looks == 2:
            self.looked.set()
            await asyncio.Event().wait()
        return self.records

    async def dial(self, addresses: Sequence[str], expect: PeerId | None = None) -> None:
        self.calls += 1
        self.calling += 1
        self.most = max(self.most, self.calling)
        try:
            await asyncio.sleep(0)
            raise FailureError(f"{addresses[0]} did not answer")
        finally:
            self.calling -= 1


def joining_of(world: Silent, clock: Clock | None = None) -> Joining:
    return Joining(cast("Any", world), cast("Any", world), role="peer", clock=clock or SystemClock())


async def test_a_look_calls_so_many_peers_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    world = Silent(320)
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        meeting = group.create_task(joining_of(world).meet(lambda _: True))
        await world.looked.wait()
        meeting.cancel()
    assert (world.calls, world.most) == (MOST_CALLS, CALLS_AT_ONCE)


def test_who_comes_and_goes_without_end_has_nobody_look_faster() -> None:
    class Counted(Silent):
        async def find(self) -> list[Any]:
            self.looks += 1
            return []

    async def main(clock: ManualClock) -> None:
        world = Counted(0)
        joining = joining_of(world, clock)
        async with asyncio.TaskGroup() as group:
            meeting = group.create_task(joining.meet(lambda _: True))
            for _ in range(1000):
                joining.look_soon()
                await asyncio.sleep(0.01)
            meeting.cancel()
        assert 5 < world.looks <= 1 + 10.0 / LOOK_SECONDS

    run_on_manual_clock(main)
