"""Links over and over, and very many bytes through one: memory, descriptors and tasks must stay flat."""

import asyncio
import contextlib
import gc
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import psutil
import typer

from benchmarks.common import Row, Table, Target, Versions
from benchmarks.links import ours
from bootstrap.commandline import run_program, single_command
from bootstrap.running import run
from swarm.net.memory import MemoryNetwork
from swarm.net.network import SystemNetwork

MB: Final = 1_000_000
GB: Final = 1000 * MB
PAYLOADS: Final = (100, 70_000, 1_100_000, 8_400_000, 64_000_000)
"""Bytes of the payloads that take turns in one link."""
SAMPLES: Final = 100
"""How often a run is looked at."""
SETTLE_SECONDS: Final = 5.0
"""How long a link that has ended may still have tasks: the last words of one take at most two."""

RSS_TARGET: Final = Target(most=1.1)
FLAT_TARGET: Final = Target(most=1.0)
OBJECTS_TARGET: Final = Target(most=1.01)


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakOptions:
    """See that memory, descriptors and tasks stay flat over many links, and over many bytes in one.

    Example: python benchmarks/soak.py --quick --check
    """

    cycles: Annotated[int, typer.Option(help="Links that are made and closed, on loopback.", min=SAMPLES)] = (
        10_000
    )
    gigabytes: Annotated[int, typer.Option(help="GB through one link, in memory.", min=1)] = 100
    quick: Annotated[bool, typer.Option("--quick", help="300 links and 2 GB.")] = False
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where something grows.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What this process holds, garbage collected."""

    rss: int
    """Bytes of memory."""
    descriptors: int
    """Open files and sockets; handles on Windows."""
    tasks: int
    """Unfinished tasks of the event loop."""
    objects: int
    """Python's objects that the garbage collector knows."""

    @classmethod
    def take(cls) -> "Sample":
        """As it is now."""
        gc.collect()
        process = psutil.Process()
        descriptors: Callable[[], int] = getattr(process, "num_fds" if os.name == "posix" else "num_handles")
        return cls(
            rss=process.memory_info().rss,
            descriptors=descriptors(),
            tasks=len(asyncio.all_tasks()),
            objects=len(gc.get_objects()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """A run: what was done in all, and samples at even distances while nothing was under way."""

    done: int
    samples: Sequence[Sample]

    def rows(self, what: str) -> list[Row]:
        """The first tenth of the run, in which caches fill, beside the largest of the rest."""
        warm = len(self.samples) // 10

        def row(name: str, of: Callable[[Sample], int], unit: str, target: Target) -> Row:
            early, late = of(self.samples[warm]), max(map(of, self.samples[warm + 1 :]))
            scale = MB if unit == "MB" else 1
            return Row(
                what=f"{name}, {what}",
                first=early / scale,
                second=late / scale,
                unit=unit,
                ratio=late / early,
                target=target,
            )

        return [
            row("memory", lambda sample: sample.rss, "MB", RSS_TARGET),
            row("descriptors", lambda sample: sample.descriptors, "", FLAT_TARGET),
            row("tasks", lambda sample: sample.tasks, "", FLAT_TARGET),
            row("objects", lambda sample: sample.objects, "", OBJECTS_TARGET),
        ]


async def soak_connections(folder: Path, *, cycles: int, samples: int = SAMPLES) -> Soak:
    """Make and close ``cycles`` links between the members ``far`` and ``near`` of ``folder``, on loopback."""
    network = SystemNetwork()
    async with (
        ours.called(folder / "far", network=network, host="127.0.0.1") as (far, answering),
        ours.caller(folder / "near", network=network) as (near, asking),
    ):
        address, idle, found = str(far.listening[0]), len(asyncio.all_tasks()), []
        for cycle in range(1, cycles + 1):
            link = await near.dial([address])
            await asking.chatter(link, times=1)
            await link.aclose("the next one")
            if cycle * samples % cycles < samples:
                await _settle(idle)
                found.append(Sample.take())
        return Soak(done=answering.downs, samples=found)


async def soak_bytes(folder: Path, *, total: int, samples: int = SAMPLES) -> Soak:
    """Send at least ``total`` bytes through one link between the same members, over a network in memory."""
    network = MemoryNetwork()
    found: list[Sample] = []
    payloads = {size: bytes(size) for size in PAYLOADS}
    async with (
        ours.called(folder / "far", network=network.host("far"), host="") as (far, answering),
        ours.calling(folder / "near", str(far.listening[0]), network=network.host("near")) as (link, asking),
    ):
        for size in itertools.cycle(PAYLOADS):
            await asking.stream(link, payloads[size], times=1)
            if answering.payload_bytes * samples >= total * (len(found) + 1):
                found.append(Sample.take())
            if answering.payload_bytes >= total:
                break
        return Soak(done=answering.payload_bytes, samples=found)


async def _settle(idle: int) -> None:
    """Wait until no more than ``idle`` tasks are there, or what is there stays."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_SECONDS):
            while len(tasks := asyncio.all_tasks()) > idle:
                others = tasks - {asyncio.current_task()}
                await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)


async def measure(options: SoakOptions) -> Table:
    """Both runs."""
    cycles, gigabytes = (300, 2) if options.quick else (options.cycles, options.gigabytes)
    versions = Versions.here("uvloop", "cryptography", "msgspec")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours.make_members(folder, "far", "near")
        connections = await soak_connections(folder, cycles=cycles)
        through_one = await soak_bytes(folder, total=gigabytes * GB)
    return Table(
        title=f"{connections.done:,} links on loopback, then {through_one.done / GB:.1f} GB in memory",
        first="after a tenth",
        second="most after that",
        rows=[*connections.rows("links"), *through_one.rows("bytes")],
        versions=versions,
        remarks=["both ends in one process"],
    )


def main(options: SoakOptions) -> int:
    """Measure and print; returns the exit status."""
    return run(lambda: measure(options)).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("soak", SoakOptions, main), "soak", sys.argv[1:]))
