"""Interrupts, against real processes: the first drains, the second ends at once, a hang ends by itself."""

import asyncio
import os
import signal
import subprocess
import sys
import time

import pytest

from bootstrap.commandline import InterruptedRunError
from bootstrap.running import run

PREAMBLE = """
import asyncio, sys, threading
from bootstrap.commandline import InterruptedRunError
from bootstrap.running import run

async def wait_for_ever():
    print("ready", flush=True)
    await asyncio.Event().wait()

def program(body):
    try:
        print("result", run(body), flush=True)
    except InterruptedRunError:
        print("interrupted", flush=True)
        sys.exit(7)
"""

DRAINING = """
async def body():
    try:
        await wait_for_ever()
    finally:
        await asyncio.sleep(0.05)
        print("drained", flush=True)
program(body)
"""

TELLING_APART = """
from bootstrap.running import is_interrupt

async def tell(waiting):
    try:
        await waiting
    except asyncio.CancelledError as error:
        print(is_interrupt(error), flush=True)

async def fail():
    raise ValueError

async def body():
    await tell(wait_for_ever())
    try:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(fail())
            await tell(asyncio.Event().wait())
    except* ValueError:
        pass
program(body)
"""

HANGING_LOOP = """
async def body():
    try:
        await wait_for_ever()
    finally:
        print("draining", flush=True)
        threading.Event().wait()
program(body)
"""

HANGING_TASK = """
async def body():
    try:
        await wait_for_ever()
    finally:
        print("draining", flush=True)
        await asyncio.Event().wait()
program(body)
"""


def start(script: str) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


INTERRUPT = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT)
STOPPING = (
    [INTERRUPT]
    if os.name == "nt"
    else [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)]
)


@pytest.mark.parametrize("number", STOPPING)
def test_an_interrupt_drains(number: signal.Signals) -> None:
    process = start(DRAINING)
    process.send_signal(number)
    output, errors = process.communicate(timeout=30)
    assert output == "drained\ninterrupted\n"
    assert errors == ""
    assert process.returncode == 7


def test_an_interrupt_is_told_from_what_goes_wrong_inside() -> None:
    process = start(TELLING_APART)
    process.send_signal(INTERRUPT)
    output, _ = process.communicate(timeout=30)
    assert output == "True\nFalse\nresult None\n"


def test_a_second_interrupt_ends_at_once() -> None:
    process = start(HANGING_TASK)
    process.send_signal(INTERRUPT)
    assert process.stdout is not None
    assert process.stdout.readline() == "draining\n"
    began = time.monotonic()  # noqa: TID251 - a real process, real time
    process.send_signal(INTERRUPT)
    process.communicate(timeout=30)
    assert time.monotonic() - began < 2  # noqa: TID251
    assert process.returncode == 130


@pytest.mark.parametrize("script", [HANGING_LOOP, HANGING_TASK])
def test_what_hangs_while_draining_is_gone_in_five_seconds(script: str) -> None:
    process = start(script)
    began = time.monotonic()  # noqa: TID251
    process.send_signal(INTERRUPT)
    output, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 5  # noqa: TID251
    assert process.returncode == 1
    assert output == "draining\n"
    assert "Thread" in errors, "the stacks say where it hung"


def test_nohup_outlives_the_terminal() -> None:
    if os.name == "nt":
        return
    process = start("import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n" + DRAINING)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert output == "drained\ninterrupted\n"


def test_a_result_comes_back_and_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT)

    async def body() -> int:
        await asyncio.sleep(0)
        return 3

    assert run(body) == 3
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_is_not_an_interrupt() -> None:
    async def body() -> None:
        raise ValueError("its own")

    with pytest.raises(ValueError, match="its own"):
        run(body)

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        run(cancelled)
    assert not issubclass(InterruptedRunError, asyncio.CancelledError)


ENDING_WITH_PARENT = """
async def body():
    try:
        await wait_for_ever()
    finally:
        print("drained", flush=True)
try:
    run(body, parent=int(sys.argv[1]))
except InterruptedRunError:
    pass
"""


def test_the_end_of_the_parent_drains() -> None:
    parent = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    child = subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + ENDING_WITH_PARENT, str(parent.pid)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    parent.kill()
    output, _ = child.communicate(timeout=30)
    parent.communicate()
    assert output == "drained\n"
    assert child.returncode == 0
    late = subprocess.run(
        [sys.executable, "-c", PREAMBLE + ENDING_WITH_PARENT, str(parent.pid)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert late.stdout == "ready\ndrained\n"
