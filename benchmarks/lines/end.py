"""A peer on a host of a lab that holds stages, and publishes jobs that keep lines or none: a command a line.

::

    python -m benchmarks.lines.end FOLDER PARENT SETTING

SETTING is that of the swarm, as JSON. What is said on standard input and output is as of
``benchmarks.links.lab_end``. The commands are the methods of :class:`End`.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import torch

from benchmarks.lines.wide import Shape, wide_job
from benchmarks.links.lab_end import PORT, obey_lines
from bootstrap.commandline import InterruptedRunError
from bootstrap.running import run
from swarm.clock import SystemClock, elapsed
from swarm.errors import FailureError
from swarm.identity.membership import Identity
from swarm.ids import JobId
from swarm.net.address import Address
from swarm.protocol import lines
from swarm.services.job import Job
from swarm.services.node import NodeConfig
from swarm.services.training.author import prepare_job
from swarm.services.training.node import Gift, TrainingNode, capabilities
from swarm.wire.limits import GIB

PATIENCE_SECONDS: Final = 120.0


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """What all ends have in common."""

    shape: Shape
    peers: int
    memory: int
    """Bytes that each gives."""
    interval: float
    """Seconds from one line to the next, at least. How long is rested after each is not changed by it."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """A job was so far at a time of ``swarm.clock.elapsed``, which all hosts of a lab share."""

    step: int
    at: float


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A job, and who coordinates it."""

    job: str
    coordinator: str


class End:
    """What can be asked of this end."""

    def __init__(self, node: TrainingNode, setting: Setting) -> None:
        self._node = node
        self._setting = setting
        self._changed = asyncio.Event()
        self._steps: dict[str, list[Moment]] = {}
        self._lines: dict[str, list[Moment]] = {}
        node.gossip.on_change.append(self._changed.set)
        node.jobs.on_change.append(self._note)

    async def obey(self, line: str) -> Any:
        """Do what one line says; returns its answer."""
        command, *words = line.split()
        return await getattr(self, command)(*words)

    async def linked(self) -> None:
        """Wait for links to all others."""
        await self._until(lambda: len(self._node.links) == self._setting.peers - 1)

    async def publish(self, keeps: str) -> Published:
        """Publish a job that ends when it is cancelled; one whose weights are for few keeps no lines."""
        only = () if keeps == "lines" else (self._node.identity.peer,)
        wanted = wide_job(self._setting.shape, export_to=only)
        prepared = await self._node.device.run(prepare_job, wanted)
        job = await self._node.author.publish(prepared, patience=PATIENCE_SECONDS)
        return Published(job=job.id, coordinator=job.coordinator)

    async def steps(self, job: str, count: str) -> list[Moment]:
        """Wait until the job has made so many; when each was heard of."""
        return await self._reached(job, self._steps, int(count))

    async def lines(self, job: str, count: str) -> list[Moment]:
        """At the coordinator: wait until so many are kept; when each was, and of which step it is."""
        return await self._reached(job, self._lines, int(count))

    async def cancel(self, job: str) -> None:
        """End the job."""
        self._node.jobs.cancel(self._node.jobs.find(job))

    async def idle(self) -> None:
        """Wait until no stage is held here."""
        await self._until(lambda: not self._node.held())

    def _note(self, job: Job) -> None:
        now = elapsed()
        for seen, step in ((self._steps, job.step), (self._lines, job.kept or 0)):
            moments = seen.setdefault(job.id, [])
            if step > (moments[-1].step if moments else 0):
                moments.append(Moment(step=step, at=now))
        self._changed.set()

    async def _reached(self, job: str, seen: dict[str, list[Moment]], count: int) -> list[Moment]:
        def ended() -> Job | None:
            known = self._node.jobs.get(JobId(job))
            return known if known is not None and known.ended else None

        await self._until(lambda: ended() is not None or len(seen.get(job, ())) >= count)
        if (known := ended()) is not None:
            raise FailureError(f"the job has ended: {known.sentence}")
        return seen[job]

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()


async def _serve(folder: Path, setting: Setting) -> None:
    setattr(lines, "SNAPSHOT_SECONDS", setting.interval)  # noqa: B010 - Final: no user sets it
    gift = Gift(device=torch.device("cpu"), memory=setting.memory)
    config = NodeConfig(
        folder=folder, role="peer", listen=Address("", PORT), disk=GIB, capabilities=capabilities(gift)
    )
    node = TrainingNode(config, gift=gift, identity=Identity.load(folder), clock=SystemClock())
    end = End(node, setting)
    async with node:
        await obey_lines(end.obey, node.identity.peer)


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[3], type=Setting)
    with contextlib.suppress(InterruptedRunError):
        run(lambda: _serve(Path(sys.argv[1]), asked), parent=int(sys.argv[2]))
