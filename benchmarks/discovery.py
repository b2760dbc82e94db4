"""Discovery beside bare kademlia and hivemind's DHT, on loopback; and a thousand nodes that lose datagrams.

Each node has a socket of its own, and all nodes of a program share a process. What is compared takes turns.
"""

import contextlib
import math
import random
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.common import Row, Table, Target, Versions
from benchmarks.dhts.bare import Bare
from benchmarks.dhts.contest import AT_A_TIME, MANY_AT_A_TIME, Contest, Contestant, Outcome, compete, together
from benchmarks.dhts.ours import Ours
from benchmarks.dhts.rival import rivals
from benchmarks.links.rival import prepare
from bootstrap.commandline import run_program, single_command
from bootstrap.running import run
from swarm.errors import FailureError

GET_SECONDS: Final = 1.5
SET_SECONDS: Final = 2.0
"""Ninety-five of a hundred take no longer, after half of the nodes have stopped."""
WITHIN: Final = Target(most=1.0)
ALL: Final = Target(least=1.0)
NEARLY_ALL: Final = Target(least=0.999)

Open = Callable[[], AbstractAsyncContextManager[Contestant]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscoveryOptions:
    """Measure discovery beside bare kademlia and hivemind's DHT, and with many nodes that lose datagrams.

    Example: python benchmarks/discovery.py --check
    """

    nodes: Annotated[int, typer.Option(help="Nodes of each program.", min=4)] = 64
    repetitions: Annotated[int, typer.Option(help="How often they start, act and stop.", min=1)] = 3
    many: Annotated[int, typer.Option(help="Nodes that lose datagrams; 0 leaves that out.", min=0)] = 1000
    loss: Annotated[float, typer.Option(help="The share of datagrams lost.", min=0, max=0.9)] = 0.2
    hivemind: Annotated[bool, typer.Option(help="Whether hivemind is measured, too.")] = True
    hivemind_venv: Annotated[
        Path | None, typer.Option(help="A virtual environment with hivemind; else one is made in the cache.")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a target is missed.")] = False


async def measure(options: DiscoveryOptions) -> Table:
    """All rows."""
    programs: dict[str, Open] = {"kademlia": _opened(Bare), "ours": _opened(Ours)}
    remarks = [
        f"{options.repetitions} repetitions of {options.nodes} nodes, the programs in turns",
        f"{AT_A_TIME} actions at a time, {MANY_AT_A_TIME} with losses, as many as one process has time for",
    ]
    if options.hivemind:
        try:
            rival = await prepare(options.hivemind_venv)
            programs["hivemind"] = lambda: rivals(rival)
            remarks.append("beside: " + ", ".join(f"{n} {v}" for n, v in rival.versions.items()))
        except FailureError as error:
            remarks.append(f"hivemind was not measured: {error}")
    contests = {name: Contest() for name in programs}
    for repetition in range(options.repetitions):
        for name, opened in programs.items():
            async with opened() as contestant:
                await compete(contestant, options.nodes, seed=repetition, into=contests[name])
    ours = contests.pop("ours")
    rows = _targets(ours)
    for name, other in contests.items():
        rows += _beside(name, ours, other)
    if options.many:
        rows += await _many(options)
    return Table(
        title="Discovery on loopback; times in seconds, 95th percentiles where nothing else is said",
        first="ours",
        second="beside it",
        rows=rows,
        versions=Versions.here("kademlia", "rpcudp", "cryptography", "msgspec"),
        remarks=remarks,
    )


def _opened(make: Callable[[], Ours | Bare]) -> Open:
    @contextlib.asynccontextmanager
    async def opened() -> AsyncIterator[Contestant]:
        contestant = make()
        try:
            yield contestant
        finally:
            await contestant.aclose()

    return opened


def percentile(outcomes: Sequence[Outcome], share: float) -> float:
    """Seconds within which ``share`` of them ended (nearest rank)."""
    ranked = sorted(outcome.seconds for outcome in outcomes)
    return ranked[max(math.ceil(share * len(ranked)), 1) - 1]


def _success(outcomes: Sequence[Outcome]) -> float:
    return sum(outcome.good for outcome in outcomes) / len(outcomes)


def _bounded(what: str, outcomes: Sequence[Outcome], bound: float) -> Row:
    seconds = percentile(outcomes, 0.95)
    return Row(what=what, first=seconds, second=bound, unit="s", ratio=seconds / bound, target=WITHIN)


def _complete(what: str, outcomes: Sequence[Outcome], target: Target) -> Row:
    good = sum(outcome.good for outcome in outcomes)
    return Row(
        what=what,
        first=good,
        second=len(outcomes),
        unit="",
        ratio=good / len(outcomes),
        target=target,
    )


def _targets(ours: Contest) -> list[Row]:
    """Ours, beside what is asked of it."""
    return [
        _bounded("get, half have stopped, beside the bound", ours.late_gets, GET_SECONDS),
        _bounded("set, half have stopped, beside the bound", ours.late_sets, SET_SECONDS),
        _complete("records found, half have stopped, of those published", ours.late_gets, ALL),
        _complete("records stored, half have stopped", ours.late_sets, ALL),
        _complete("joins, sets and gets before that", [*ours.joins, *ours.sets, *ours.gets], ALL),
    ]


def _beside(name: str, ours: Contest, other: Contest) -> list[Row]:
    """Ours, beside another program: times, and how many came to something."""
    pairs = {
        "join": (ours.joins, other.joins),
        "set": (ours.sets, other.sets),
        "get": (ours.gets, other.gets),
        "get, half have stopped": (ours.late_gets, other.late_gets),
        "set, half have stopped": (ours.late_sets, other.late_sets),
    }
    rows = []
    for what, (mine, theirs) in pairs.items():
        first, second = percentile(mine, 0.95), percentile(theirs, 0.95)
        rows.append(
            Row(what=f"{what}, beside {name}", first=first, second=second, unit="s", ratio=first / second)
        )
    good, others = _success(ours.late_gets), _success(other.late_gets)
    what = f"share of records found, half have stopped, beside {name}"
    rows.append(Row(what=what, first=good, second=others, unit="", ratio=good / others if others else 0.0))
    return rows


async def _each(actions: Sequence[Callable[[], Awaitable[Outcome]]]) -> list[Outcome]:
    return await together(actions, at_a_time=MANY_AT_A_TIME)


async def _many(options: DiscoveryOptions) -> list[Row]:
    """Many nodes that lose datagrams: all join, all set, each gets the record of another."""
    source = random.Random(1)
    nodes = Ours(loss=options.loss, seed=1)
    where = f"{options.many:,} nodes, {options.loss:.0%} of datagrams lost"
    try:
        steps = {"join": [await nodes.join(0)]}
        everybody = range(options.many)
        steps["join"] += await _each([partial(nodes.join, n) for n in everybody[1:]])
        steps["set"] = await _each([partial(nodes.set, n) for n in everybody])
        steps["get"] = await _each([partial(nodes.get, n, source.choice(everybody)) for n in everybody])
        found = await nodes.found(source.randrange(options.many))
    finally:
        await nodes.aclose()
    rows = [
        Row(
            what=f"{step}, median beside 95th percentile, {where}",
            first=percentile(outcomes, 0.5),
            second=percentile(outcomes, 0.95),
            unit="s",
            ratio=percentile(outcomes, 0.5) / percentile(outcomes, 0.95),
        )
        for step, outcomes in steps.items()
    ]
    rows += [_complete(f"{step}, {where}", outcomes, NEARLY_ALL) for step, outcomes in steps.items()]
    ratio = found / options.many
    what = f"publishers found by one of {where}"
    rows.append(Row(what=what, first=found, second=options.many, unit="", ratio=ratio, target=NEARLY_ALL))
    return rows


def main(options: DiscoveryOptions) -> int:
    """Measure and print; returns the exit status."""
    return run(lambda: measure(options)).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("discovery", DiscoveryOptions, main), "discovery", sys.argv[1:]))
