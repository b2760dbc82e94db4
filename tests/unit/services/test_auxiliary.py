"""A bug in a side service is reported and started again, within a budget."""

import asyncio
import logging

import pytest

from swarm.services import auxiliary
from swarm.services.auxiliary import MAX_FAULTS, run_auxiliary
from swarm.testing.clock import ManualClock


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auxiliary, "PAUSE_SECONDS", 0.0)


async def test_it_is_started_again_after_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    runs = 0

    async def service() -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError("a bug")

    with caplog.at_level(logging.ERROR):
        await run_auxiliary("view", service, clock=ManualClock())
    assert runs == 3
    assert [record.getMessage() for record in caplog.records] == ["a service failed"] * 2


async def test_it_is_given_up_when_faults_come_fast() -> None:
    runs = 0

    async def service() -> None:
        nonlocal runs
        runs += 1
        raise ValueError("a bug")

    await run_auxiliary("view", service, clock=ManualClock())
    assert runs == MAX_FAULTS


async def test_rare_faults_are_forgiven() -> None:
    clock = ManualClock()
    runs = 0

    async def service() -> None:
        nonlocal runs
        runs += 1
        clock.advance(auxiliary.WINDOW_SECONDS / 2)
        if runs <= 3 * MAX_FAULTS:
            raise ValueError("a bug")

    await run_auxiliary("view", service, clock=clock)
    assert runs == 3 * MAX_FAULTS + 1


async def test_cancellation_is_no_fault() -> None:
    async with asyncio.TaskGroup() as tasks:
        began = asyncio.Event()

        async def service() -> None:
            began.set()
            await asyncio.Event().wait()

        task = tasks.create_task(run_auxiliary("view", service, clock=ManualClock()))
        await began.wait()
        task.cancel()
    assert task.cancelled()
