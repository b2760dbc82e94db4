import asyncio
import subprocess
import sys
import threading

import pytest
import torch

from swarm.errors import MisuseError
from swarm.train.device import (
    ACCELERATORS,
    DeviceThread,
    Patience,
    configure_device,
    find_device,
    like_machines,
    memory_of,
    seeder,
)

CPU = torch.device("cpu")


@pytest.mark.parametrize("text", ["cpu", "cpu:0"])
def test_the_cpu_is_a_device(text):
    assert find_device(text) == CPU


def test_without_a_name_there_is_always_a_device():
    assert find_device().type in {"cpu", "cuda"}


@pytest.mark.parametrize("text", ["tpu", "meta", "cuda:", "xpu:x", "mps:-1", "gpu:1"])
def test_other_kinds_of_device_are_refused(text):
    with pytest.raises(MisuseError, match=f"{text} is not a device for training"):
        find_device(text)


@pytest.mark.parametrize("kind", ACCELERATORS)
def test_a_device_that_is_not_here_is_refused(kind):
    words = rf"^--device {kind}:99 is not here: torch .* sees \d+ {kind.upper()} devices$"
    with pytest.raises(MisuseError, match=words):
        find_device(f"{kind}:99")


@pytest.mark.parametrize("kind", ACCELERATORS)
def test_what_is_asked_of_a_kind_is_there_in_this_torch(kind):
    """Under the names that are used once a device of the kind is found; for MPS they differ."""
    module = torch.get_device_module(kind)
    names = {"device_count", "empty_cache"}
    names |= (
        {"manual_seed", "recommended_max_memory", "driver_allocated_memory"}
        if kind == "mps"
        else {"default_generators", "get_device_name", "init", "mem_get_info", "set_device"}
    )
    assert [name for name in sorted(names) if not hasattr(module, name)] == []


def test_a_seed_is_that_of_the_generator_that_operators_draw_from():
    drawn = []
    for seed in (7, 8, 7):
        seeder(CPU)(seed)
        drawn.append(torch.rand(3).tolist())
    assert drawn[0] == drawn[2] != drawn[1]


async def test_the_device_thread_is_one_configured_thread():
    def look() -> tuple[str, int, bool]:
        name = threading.current_thread().name
        return name, torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()

    async with DeviceThread(CPU) as device:
        await device.run(torch.set_num_threads, 2)
        await device.run(configure_device, CPU)
        seen = await asyncio.gather(*(device.run(look) for _ in range(5)))
    assert len(set(seen)) == 1
    name, threads, deterministic = seen[0]
    assert name.startswith("device")
    assert (threads, deterministic) == (1, True)


async def test_work_runs_in_the_order_in_which_it_is_asked_for():
    order: list[int] = []
    async with DeviceThread(CPU) as device:
        await asyncio.gather(*(device.run(order.append, number) for number in range(20)))
    assert order == list(range(20))


async def test_what_work_raises_reaches_the_caller():
    async with DeviceThread(CPU) as device:
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            await device.run(torch.mm, torch.zeros(2, 3), torch.zeros(2, 3))


async def test_closing_ends_the_thread():
    device = DeviceThread(CPU)
    thread = await device.run(threading.current_thread)
    await device.aclose()
    assert not thread.is_alive()


async def test_an_operator_that_outlives_its_job_is_told_of():
    told: list[str] = []
    stuck, begun, release = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def hear(sentence: str) -> None:
        told.append(sentence)
        stuck.set()

    def never() -> None:
        begun.set()
        release.wait()

    async with (
        DeviceThread(CPU, Patience(abandoned=0.01, on_stuck=hear)) as device,
        asyncio.TaskGroup() as group,
    ):
        await device.run(lambda: None)
        task = group.create_task(device.run(never))
        await loop.run_in_executor(None, begun.wait)
        task.cancel()
        await stuck.wait()
        release.set()
    (sentence,) = told
    assert "the device still runs" in sentence
    assert "never for a job that ended 0 s ago" in sentence


async def test_work_that_was_waiting_when_its_job_ended_is_dropped_and_not_told_of():
    told: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        release.wait()

    async with (
        DeviceThread(CPU, Patience(abandoned=0.0, on_stuck=told.append)) as device,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(device.run(first))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        waiting = group.create_task(device.run(lambda: told.append("ran")))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        await asyncio.sleep(0)
        release.set()
    assert told == []


async def test_closing_does_not_wait_for_ever():
    told: list[str] = []
    begun, release = threading.Event(), threading.Event()

    def never() -> None:
        begun.set()
        release.wait()

    device = DeviceThread(CPU, Patience(closing=0.01, on_stuck=told.append))
    async with asyncio.TaskGroup() as group:
        group.create_task(device.run(never))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        await device.aclose()
        release.set()
    assert told == ["an operator did not return within 0 s; this process ends without it"]


def test_the_process_ends_with_its_last_line_even_while_an_operator_runs():
    program = (
        "import threading, swarm.log; from swarm.train.device import end_process; swarm.log.configure(); "
        "threading.Thread(target=threading.Event().wait).start(); end_process('this is why')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 1
    assert "this is why" in ended.stderr


def test_memory_is_in_bytes():
    memory = memory_of(CPU)
    assert 2**20 < memory.available <= memory.total


def test_like_machines_name_what_bits_depend_on():
    text = like_machines(CPU)
    assert torch.__version__ in text
    assert torch.backends.cpu.get_cpu_capability() in text


def test_fresh_memory_carries_nothing_of_what_was_there():
    configure_device(CPU)
    secret = torch.full((1000,), 1234567.0)
    del secret
    assert torch.empty(1000).isnan().all()
