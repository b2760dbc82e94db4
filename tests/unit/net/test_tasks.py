"""The tasks of a pool."""

import asyncio

import pytest

from swarm.net.tasks import OwnedTasks


async def forever() -> None:
    await asyncio.get_running_loop().create_future()


async def fail() -> None:
    raise ZeroDivisionError("a bug")


async def test_they_run_until_they_are_cancelled_and_can_be_opened_again() -> None:
    tasks = OwnedTasks()
    assert not tasks.is_open
    for _ in range(2):
        ran = asyncio.Event()

        async def note(ran: asyncio.Event = ran) -> None:
            ran.set()
            await forever()

        await tasks.open()
        assert tasks.is_open
        tasks.add(note())
        await ran.wait()
        tasks.cancel()
        await tasks.aclose()
        assert not tasks.is_open


async def test_what_is_added_too_late_never_begins() -> None:
    tasks = OwnedTasks()
    tasks.add(fail())
    await tasks.open()
    tasks.end()
    tasks.add(fail())
    await tasks.aclose()


async def test_a_failure_ends_the_owner_and_all_others() -> None:
    tasks = OwnedTasks()

    async def run() -> None:
        await tasks.open()
        try:
            tasks.add(forever())
            tasks.add(fail())
            await forever()
        finally:
            assert not tasks.is_open
            tasks.add(forever())
            await tasks.aclose()

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(ZeroDivisionError)
