"""Whoever uses a link is cancelled at any of its awaits, over a network in memory: nothing is left of it."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from swarm import clock as system
from swarm.errors import FailureError, RemoteError
from swarm.net.memory import MemoryNetwork
from swarm.net.pool import Pool
from swarm.testing.clock import ManualClock
from swarm.testing.loop import run_on_manual_clock
from swarm.testing.pools import Pools, Recorder
from swarm.wire.messages.blocks import BlockMissing, BlockReply

ALICE = "alice:7423"
LATENCY = 0.02
PAYLOAD = bytes(1_000_000)


class Cancelled(Coroutine[Any, Any, None]):
    """``inner``, whose task is cancelled as it waits for the time number ``at``."""

    def __init__(self, inner: Coroutine[Any, Any, None], *, at: int) -> None:
        self._inner = inner
        self._at = at
        self.waits = 0

    def send(self, value: Any) -> Any:
        return self._waits(self._inner.send(value))

    def throw(self, *error: Any) -> Any:
        return self._waits(self._inner.throw(*error))

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Any:
        return self._inner.__await__()

    def _waits(self, future: Any) -> Any:
        if self.waits == self._at:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        self.waits += 1
        return future


class World:
    """Two pools' worth of members on one network."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        clock.set_wall(system.wall())  # OpenSSL judges certificates by the system's clock
        self.clock = clock
        self.network = MemoryNetwork(latency=LATENCY)
        self.pools = Pools(folder, clock=clock)
        self.heard = Recorder()

    def pool(self, host: str) -> Pool:
        return self.pools.pool(
            self.network.host(host), handlers=self.heard if host == "alice" else Recorder()
        )


def held(pool: Pool) -> int:
    memory = pool._memory
    return memory._begun.held + memory._granted.held + memory._control.held


async def use(pool: Pool) -> None:
    """Call, send a payload and wait for that, go."""
    link = await pool.dial([ALICE])
    sending = link.post(BlockReply(request=1), PAYLOAD)
    try:
        await sending.wait()
    finally:
        sending.cancel()
    await link.aclose("done")


async def serve(pool: Pool) -> None:
    """Listen for a while."""
    async with pool:
        for _ in range(30):
            await asyncio.sleep(LATENCY / 2)


async def sender_is_cancelled(world: World, at: int) -> bool:
    async with world.pool("alice") as alice, world.pool("bob") as bob:
        tasks = asyncio.all_tasks()
        story = Cancelled(use(bob), at=at)
        async with asyncio.TaskGroup() as group:
            group.create_task(story)
        await asyncio.sleep(5.0)
        for link in list(bob.links.values()):
            await link.aclose("the next one")
        await asyncio.sleep(5.0)
        assert asyncio.all_tasks() == tasks
        assert not alice.links
        assert not bob.links
        assert held(alice) == held(bob) == 0
        assert world.network.connections() == ()
        again = await bob.dial([ALICE])
        again.post(BlockMissing(request=2))
        await world.heard.until(lambda r: (BlockMissing(request=2), b"") in r.messages)
        assert all(payload in {b"", PAYLOAD} for _, payload in world.heard.messages)
        return story.waits <= at


async def receiver_is_cancelled(world: World, at: int) -> bool:
    async with world.pool("bob") as bob:
        tasks = asyncio.all_tasks()
        alice = world.pool("alice")
        story = Cancelled(serve(alice), at=at)
        async with asyncio.TaskGroup() as group:
            group.create_task(story)
            group.create_task(_send(bob))
        await asyncio.sleep(5.0)
        assert asyncio.all_tasks() == tasks
        assert not alice.links
        assert not bob.links
        assert held(alice) == held(bob) == 0
        assert world.network.connections() == ()
        return story.waits <= at


async def _send(pool: Pool) -> None:
    """Send payloads until the other side goes."""
    try:
        link = await pool.dial([ALICE])
        while True:
            await link.post(BlockReply(request=1), PAYLOAD).wait()
    except (FailureError, RemoteError):
        return


@pytest.mark.parametrize("scenario", [sender_is_cancelled, receiver_is_cancelled])
def test_whoever_is_cancelled_at_any_await_leaves_nothing(
    tmp_path: Path, scenario: Callable[[World, int], Awaitable[bool]]
) -> None:
    def is_last(at: int) -> bool:
        async def main(clock: ManualClock) -> bool:
            return await scenario(World(tmp_path / str(at), clock), at)

        return run_on_manual_clock(main)

    waits = 0
    while not is_last(waits):
        waits += 1
    assert waits >= 5, "there is no more to be cancelled"
