"""Links beside bare TLS, and beside another program's remote call, on loopback.

Whatever is compared takes turns, repetition by repetition, since other programs share the machine.
"""

import asyncio
import contextlib
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final

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


@dataclass(slots=True, kw_only=True)
class _Pair:
    """Repetitions of two things that are compared."""

    link: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)

    def row(self, what: str, *, unit: str, target: Target) -> Row:
        return compared(what, self.link, self.other, unit=unit, target=target)


@dataclass(frozen=True, slots=True, kw_only=True)
class NearEnd:
    """The calling ends of all connections to one far end."""

    link: Link
    asking: ours.Asking
    writer: bare.Writer
    chatterer: bare.Chatterer

    async def stream(self, size: int, *, options: LinkOptions) -> _Pair:
        """Payloads of ``size`` bytes one after the other, in MB/s."""
        payload, times = os.urandom(size), max(options.megabytes * MB // size, 1)
        pair = _Pair()
        for repetition in range(options.repetitions + 1):
            other = await _seconds(lambda: self.writer.stream(payload, times=times))
            link = await _seconds(lambda: self.asking.stream(self.link, payload, times=times))
            if repetition:  # the first warms up
                pair.link.append(times * size / link / MB)
                pair.other.append(times * size / other / MB)
        return pair

    async def chatter(self, *, options: LinkOptions) -> _Pair:
        """Round trips of small messages, in microseconds."""
        pair = _Pair()
        for repetition in range(options.repetitions + 1):
            other = await _seconds(lambda: self.chatterer.chatter(times=SMALL_TIMES))
            link = await _seconds(lambda: self.asking.chatter(self.link, times=SMALL_TIMES))
            if repetition:
                pair.link.append(link / SMALL_TIMES * 1e6)
                pair.other.append(other / SMALL_TIMES * 1e6)
        return pair

    async def call(self, calls: Calls, *, options: LinkOptions) -> _Pair:
        """A payload there and back, in MB/s both ways together."""
        payload, sent = os.urandom(CALL_BYTES), 2 * CALL_BYTES * CALL_TIMES
        pair = _Pair()
        for repetition in range(options.repetitions + 1):
            other = sum([await calls.seconds() for _ in range(CALL_TIMES)])
            link = await _seconds(lambda: self._call(payload))
            if repetition:
                pair.link.append(sent / link / MB)
                pair.other.append(sent / other / MB)
        return pair

    async def _call(self, payload: bytes) -> None:
        for _ in range(CALL_TIMES):
            await self.asking.call(self.link, payload)


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
            rows = await _beside_tls(near, "two processes", options)
            if options.hivemind:
                try:
                    rival = await prepare(options.hivemind_venv)
                    async with expert_calls(rival, CALL_BYTES) as calls:
                        pair = await near.call(calls, options=options)
                    what = "8.4 MB there and back, two processes, beside hivemind's expert without compute"
                    rows.append(pair.row(what, unit="MB/s", target=CALL_TARGET))
                    remarks.append("beside: " + ", ".join(f"{n} {v}" for n, v in rival.versions.items()))
                except FailureError as error:
                    remarks.append(f"hivemind was not measured: {error}")
        async with far_end(folder / "far") as far, near_end(folder / "near", far) as near:
            rows += await _beside_tls(near, "one process", options)
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
        pair = await near.stream(size, options=options)
        rows.append(pair.row(f"payloads of {size / MB:.1f} MB, {where}", unit="MB/s", target=STREAM_TARGET))
    pair = await near.chatter(options=options)
    rows.append(pair.row(f"round trip of a small message, {where}", unit="us", target=SMALL_TARGET))
    return rows


async def _seconds(act: Callable[[], Awaitable[None]]) -> float:
    began = elapsed()
    await act()
    return elapsed() - began


def main(options: LinkOptions) -> int:
    """Measure and print; returns the exit status."""
    return run(lambda: measure(options)).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("link", LinkOptions, main), "link", sys.argv[1:]))
