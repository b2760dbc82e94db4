"""Links beside bare TLS, and beside another program's remote call, on loopback.

Whatever is compared takes turns, repetition by repetition, since other programs share the machine.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import typer

from benchmarks.common import Row, Table, Target, Versions, compared
from benchmarks.links import bare, ours
from benchmarks.links.far import FarEnd, far_end, far_process
from benchmarks.links.rival import Calls, expert_calls, prepare
from bootstrap.commandline import run_program, single_command
from bootstrap.running import run
from swarm.clock import elapsed
from swarm.errors import FailureError
from swarm.net.link import Link
from swarm.net.network import SystemNetwork
from swarm.wire.limits import MIB

MB: Final = 1_000_000
CALL_BYTES: Final = 8 * MIB
"""The payload of a remote call: 8.4 MB, 2,048 rows of 1,024 float32."""
LARGE_BYTES: Final = 64 * MB
CALL_TIMES: Final = 3
"""Calls of one repetition, one after the other: what the other program does after one disturbs the next."""
SMALL_TIMES: Final = 2000
"""Small messages of one repetition."""
TWO_PROCESSES: Final = "two processes"
ONE_PROCESS: Final = "one process"

STREAM_TARGET: Final = Target(least=0.8)
SMALL_TARGET: Final = Target(most=2.0)
CALL_TARGET: Final = Target(least=5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """Measure links beside bare TLS and beside hivemind, on loopback.

    Example: python benchmarks/link.py --check
    """

    repetitions: Annotated[int, typer.Option(help="How often each measurement is made.", min=1)] = 15
    megabytes: Annotated[int, typer.Option(help="MB that a stream sends in one of them.", min=1)] = 256
    hivemind: Annotated[bool, typer.Option(help="Whether hivemind is measured, too.")] = True
    hivemind_venv: Annotated[
        Path | None, typer.Option(help="A virtual environment with hivemind; else one is made in the cache.")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a target is missed.")] = False


class Cost(NamedTuple):
    """What something took, in seconds."""

    wall: float
    processor: float
    """Of this process alone, on all cores."""


@dataclass(slots=True, kw_only=True)
class _Pair:
    """Repetitions of two things that are compared."""

    link: list[Cost] = field(default_factory=list)
    other: list[Cost] = field(default_factory=list)

    def rate(self, what: str, size: int, *, target: Target) -> Row:
        """``size`` bytes in each repetition, in MB/s."""
        first, second = ([size / MB / cost.wall for cost in costs] for costs in (self.link, self.other))
        return compared(what, first, second, unit="MB/s", target=target)

    def time(self, what: str, times: int, *, target: Target) -> Row:
        """One of ``times`` in each repetition, in microseconds."""
        first, second = ([cost.wall / times * 1e6 for cost in costs] for costs in (self.link, self.other))
        return compared(what, first, second, unit="us", target=target)

    def processor(self, what: str) -> Row:
        """Processor time of a repetition, in milliseconds."""
        first, second = ([cost.processor * 1e3 for cost in costs] for costs in (self.link, self.other))
        return compared(f"processor time, {what}", first, second, unit="ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class NearEnd:
    """The calling ends of all connections to one far end."""

    link: Link
    asking: ours.Asking
    writer: bare.Writer
    chatterer: bare.Chatterer

    async def stream(self, size: int, *, times: int, repetitions: int) -> _Pair:
        """So many payloads of ``size`` bytes, one after the other."""
        payload = os.urandom(size)
        return await _in_turns(
            lambda: self.asking.stream(self.link, payload, times=times),
            lambda: _cost(lambda: self.writer.stream(payload, times=times)),
            repetitions=repetitions,
        )

    async def chatter(self, *, repetitions: int) -> _Pair:
        """Round trips of small messages."""
        return await _in_turns(
            lambda: self.asking.chatter(self.link, times=SMALL_TIMES),
            lambda: _cost(lambda: self.chatterer.chatter(times=SMALL_TIMES)),
            repetitions=repetitions,
        )

    async def call(self, calls: Calls, *, repetitions: int) -> _Pair:
        """A payload there and back, CALL_TIMES."""
        payload = os.urandom(CALL_BYTES)

        async def link() -> None:
            for _ in range(CALL_TIMES):
                await self.asking.call(self.link, payload)

        async def other() -> Cost:
            return Cost(sum([await calls.seconds() for _ in range(CALL_TIMES)]), 0.0)

        return await _in_turns(link, other, repetitions=repetitions)


@contextlib.asynccontextmanager
async def near_end(folder: Path, where: FarEnd) -> AsyncIterator[NearEnd]:
    """Connections to ``where`` as the member in ``folder``."""
    async with (
        ours.calling(folder, where.link, network=SystemNetwork()) as (link, asking),
        bare.connected(folder, where.counter, bare.Writer) as writer,
        bare.connected(folder, where.echo, bare.Chatterer) as chatterer,
    ):
        yield NearEnd(link=link, asking=asking, writer=writer, chatterer=chatterer)


async def measure(options: LinkOptions) -> Table:
    """All rows. Raises FailureError where there is no uvloop: its TLS is what links are compared with."""
    if not type(asyncio.get_running_loop()).__module__.startswith("uvloop"):
        raise FailureError("there is nothing to compare with: uvloop is not installed")
    versions, remarks = Versions.here("uvloop", "cryptography", "msgspec"), []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours.make_members(folder, "far", "near")
        async with far_process(folder / "far") as far, near_end(folder / "near", far) as near:
            rows = await _beside_tls(near, TWO_PROCESSES, options)
            if options.hivemind:
                try:
                    rival = await prepare(options.hivemind_venv)
                    async with expert_calls(rival, CALL_BYTES) as calls:
                        pair = await near.call(calls, repetitions=options.repetitions)
                    what = "8.4 MB there and back, two processes, beside hivemind's expert without compute"
                    rows.append(pair.rate(what, 2 * CALL_BYTES * CALL_TIMES, target=CALL_TARGET))
                    remarks.append("beside: " + ", ".join(f"{n} {v}" for n, v in rival.versions.items()))
                except FailureError as error:
                    remarks.append(f"hivemind was not measured: {error}")
        async with far_end(folder / "far") as far, near_end(folder / "near", far) as near:
            rows += await _beside_tls(near, ONE_PROCESS, options)
    return Table(
        title="Links on loopback, beside an asyncio.Protocol on uvloop's TLS that writes 256 KiB views",
        first="link",
        second="beside it",
        rows=rows,
        versions=versions,
        remarks=[f"medians of {options.repetitions} repetitions taken in turns", *remarks],
    )


async def _beside_tls(near: NearEnd, where: str, options: LinkOptions) -> list[Row]:
    rows = []
    for size in (CALL_BYTES, LARGE_BYTES):
        what, times = f"payloads of {size / MB:.1f} MB, {where}", max(options.megabytes * MB // size, 1)
        pair = await near.stream(size, times=times, repetitions=options.repetitions)
        rows.append(pair.rate(what, size * times, target=STREAM_TARGET))
    if where == ONE_PROCESS:
        rows.append(pair.processor(f"{what}, {size * times / MB:.0f} MB"))
    pair = await near.chatter(repetitions=options.repetitions)
    rows.append(pair.time(f"round trip of a small message, {where}", SMALL_TIMES, target=SMALL_TARGET))
    if where == ONE_PROCESS:
        rows.append(pair.processor(f"{SMALL_TIMES} round trips, {where}"))
    return rows


async def _in_turns(
    link: Callable[[], Awaitable[None]], other: Callable[[], Awaitable[Cost]], *, repetitions: int
) -> _Pair:
    """Both, one after the other, so often; the first of each warms up."""
    pair = _Pair()
    for repetition in range(repetitions + 1):
        theirs = await other()
        mine = await _cost(link)
        if repetition:
            pair.link.append(mine)
            pair.other.append(theirs)
    return pair


async def _cost(act: Callable[[], Awaitable[None]]) -> Cost:
    wall, processor = elapsed(), time.process_time()
    await act()
    return Cost(elapsed() - wall, time.process_time() - processor)


def main(options: LinkOptions) -> int:
    """Measure and print; returns the exit status."""
    return run(lambda: measure(options)).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("link", LinkOptions, main), "link", sys.argv[1:]))
