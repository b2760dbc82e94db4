"""The demo's other processes: bootstrap node and peers, started, watched and ended."""

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from swarm.errors import FailureError

START_SECONDS: Final = 60.0
"""From a process's start to its first line; a slow machine needs ten to import torch."""
STOP_SECONDS: Final = 6.0
"""From the request to end to the end by force; a node promises five."""

_NEW_GROUP: Final = getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)
_LOG_LINE: Final = re.compile(r"\d\d:\d\d:\d\d ")
"""What it went on doing is not why it ended."""
_STOP: Final = getattr(signal, "CTRL_BREAK_EVENT", signal.SIGTERM)


class Child:
    """One process of this program. Its standard error goes to ``log``."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, log: Path) -> None:
        self.name = name
        self._process = process
        self._log = log

    @classmethod
    async def start(cls, name: str, command: Sequence[str], log: Path) -> Self:
        """Start ``python -m`` with these words; it ends when this process does.

        It has a session of its own, so that Ctrl+C at the terminal reaches this process alone, which then
        ends its children in order.
        """
        with log.open("wb") as file:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # nothing in the current folder may take the program's place
                "-m",
                *command,
                "--parent",
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=file,
                env=_environment(),
                start_new_session=os.name != "nt",
                creationflags=_NEW_GROUP,
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    async def first_document(self) -> bytes:
        """All that it prints until the JSON document of ``--json`` is complete: up to a line of ``}``.

        Raises FailureError where it ends before that, or takes too long.
        """
        lines: list[bytes] = []
        try:
            async with asyncio.timeout(START_SECONDS):
                while self._process.stdout and (line := await self._process.stdout.readline()):
                    lines.append(line)
                    if line.rstrip() == b"}":
                        return b"".join(lines)
        except TimeoutError:
            raise FailureError(f"{self.name} did not start within {START_SECONDS:.0f} s") from None
        await self._process.wait()
        raise FailureError(self.epitaph())

    async def wait(self) -> None:
        """Wait for its end."""
        await self._process.wait()

    def epitaph(self) -> str:
        """How it ended, with the cause where its log has one."""
        words = self._last_words()
        cause = "" if not words or _LOG_LINE.match(words) else f": {words}"
        return f"{self.name} ended with status {self._process.returncode}{cause}"

    async def stop(self) -> None:
        """Ask it to end, and end it by force if it does not."""
        with contextlib.suppress(ProcessLookupError):
            if self._process.returncode is None:
                self._process.send_signal(_STOP)
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return lines[-1] if lines else ""


class Children:
    """All child processes of a demo; leaving the context ends them, all at once."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._children: list[Child] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        # The last started first: peers say goodbye while their bootstrap node is there to hear it.
        async with asyncio.TaskGroup() as tasks:
            for child in reversed(self._children):
                tasks.create_task(child.stop(), name=f"stop {child.name}")

    async def start(self, name: str, command: Sequence[str]) -> Child:
        """Start one more."""
        child = await Child.start(name, command, self._logs / f"{name}.log")
        self._children.append(child)
        return child

    async def wait_for_first_end(self) -> Child:
        """The first child that ends by itself, which none should."""
        ended: asyncio.Future[Child] = asyncio.get_running_loop().create_future()

        async def watch(child: Child) -> None:
            await child.wait()
            if not ended.done():
                ended.set_result(child)

        async with asyncio.TaskGroup() as tasks:
            watches = [
                tasks.create_task(watch(child), name=f"watch {child.name}") for child in self._children
            ]
            try:
                return await ended
            finally:
                for task in watches:
                    task.cancel()


def _environment() -> dict[str, str]:
    """This process's, in which the program is found even where it is not installed."""
    root = str(Path(__file__).resolve().parents[2])
    known = os.environ.get("PYTHONPATH", "")
    return os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{known}" if known else root}
