import asyncio
import time
from typing import NoReturn

import pytest

from swarm.testing.clock import ManualClock
from swarm.testing.loop import ManualLoop, run_on_manual_clock


def test_hours_pass_at_once_and_in_order() -> None:
    async def main(clock: ManualClock) -> list[tuple[str, float]]:
        events: list[tuple[str, float]] = []

        async def note(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            events.append((name, clock.elapsed()))

        async with asyncio.TaskGroup() as group:
            for name, seconds in (("day", 86400.0), ("second", 1.0), ("hour", 3600.0)):
                group.create_task(note(name, seconds))
        return events

    started = time.perf_counter()
    events = run_on_manual_clock(main)
    assert time.perf_counter() - started < 10
    assert [name for name, _ in events] == ["second", "hour", "day"]
    assert [when for _, when in events] == [pytest.approx(1.0), pytest.approx(3600.0), pytest.approx(86400.0)]


def test_the_date_advances_with_the_timers() -> None:
    async def main(clock: ManualClock) -> float:
        before = clock.wall()
        await asyncio.sleep(60)
        return clock.wall() - before

    assert run_on_manual_clock(main) == pytest.approx(60)


def test_timeouts_follow_the_clock() -> None:
    async def main(clock: ManualClock) -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(10):
                await asyncio.Event().wait()
        return clock.elapsed()

    assert run_on_manual_clock(main) == pytest.approx(10)


def test_a_clock_moved_by_hand_lets_timers_fire() -> None:
    async def main(clock: ManualClock) -> bool:
        fired = asyncio.Event()
        asyncio.get_running_loop().call_later(100, fired.set)
        clock.advance(100)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return fired.is_set()

    assert run_on_manual_clock(main)


def test_calls_to_threads_run_in_place() -> None:
    async def main(clock: ManualClock) -> tuple[int, float]:
        return await asyncio.to_thread(divmod, 7, 4), clock.elapsed()

    assert run_on_manual_clock(main) == ((1, 3), 0.0)


def test_calls_to_threads_raise_in_place() -> None:
    def fail() -> NoReturn:
        raise KeyError("reason")

    async def main(clock: ManualClock) -> None:
        with pytest.raises(KeyError, match="reason"):
            await asyncio.to_thread(fail)

    run_on_manual_clock(main)


def test_real_sockets_are_still_heard() -> None:
    async def main(clock: ManualClock) -> bytes:
        server = await asyncio.start_server(
            lambda _, writer: (writer.write(b"hello"), writer.close()), "127.0.0.1"
        )
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        data = await reader.read()
        writer.close()
        await writer.wait_closed()
        server.close()
        await server.wait_closed()
        return data

    assert run_on_manual_clock(main) == b"hello"


def test_the_loops_time_is_the_clocks() -> None:
    clock = ManualClock(elapsed=5.0)
    loop = ManualLoop(clock)
    try:
        assert loop.time() == 5.0
        clock.advance(2)
        assert loop.time() == 7.0
    finally:
        loop.close()
