"""Nodes of hivemind's DHT, in a process of their own with a daemon for each."""

import asyncio
import contextlib
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

from benchmarks.dhts.contest import Outcome
from benchmarks.links.rival import Rival, read_line, started

ACTION_SECONDS: Final = 300.0
_NODES: Final = Path(__file__).with_name("hivemind_nodes.py")


class Rivals:
    """A contestant."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}

    async def read(self) -> None:
        """For ever: pass on what the nodes say. Raises FailureError where they say nothing any more."""
        while True:
            number, seconds, good = (await read_line(self._process, seconds=ACTION_SECONDS)).split()
            outcome = Outcome(seconds=float(seconds), good=good == "1")
            self._waiting.pop(int(number)).set_result(outcome)

    async def _act(self, number: int, *command: str) -> Outcome:
        waiting: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[number] = waiting
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number} {' '.join(command)}\n".encode())
        return await waiting

    async def join(self, number: int) -> Outcome:
        """Start a node and enter through the first."""
        return await self._act(number, "join")

    async def set(self, number: int) -> Outcome:
        """Store a value under the node's key."""
        return await self._act(number, "set")

    async def get(self, number: int, other: int) -> Outcome:
        """Get the value of another node."""
        return await self._act(number, "get", str(other))

    async def stop(self, number: int) -> None:
        """Kill its daemon."""
        await self._act(number, "stop")


@contextlib.asynccontextmanager
async def rivals(rival: Rival) -> AsyncIterator[Rivals]:
    """The contestant; raises FailureError out of the block where its process fails."""
    async with started(rival, _NODES) as process:
        nodes = Rivals(process)
        try:
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(nodes.read())
                yield nodes
                reading.cancel()
        except* Exception as errors:  # noqa: BLE001 - one cause is enough, and is raised again
            raise errors.exceptions[0] from None
