"""Links on networks of netlab with shaped rates, beside iperf3: goodput, round trips beside bulk, caps, cuts.

Takes root on Linux and iperf3. Every network is made anew; iperf3 and the link take turns on it.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from benchmarks.common import Row, Table, Target, Versions, compared
from benchmarks.links import lab_ends, shaped
from bootstrap.commandline import run_program, single_command
from swarm.errors import FailureError
from swarm.testing.netlab.running import RunningLab
from swarm.testing.netlab.tools import missing

CONTROLS: Final = ("cubic", "bbr")
GOODPUT_TARGET: Final = Target(least=0.97)
BOUND_TARGET: Final = Target(most=1.0)
CAP_TARGET: Final = Target(least=0.95, most=1.05)
HEALED_SECONDS: Final = 5.0
"""Within this a healed link is used again."""
CAPS: Final = (("8Mbit", 500_000), ("100Mbit", 4_000_000))
"""Rates of links, and caps below them in bytes a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedOptions:
    """Measure links on shaped networks beside iperf3. Takes root on Linux.

    Example: sudo python benchmarks/link_shaped.py --check
    """

    repetitions: Annotated[int, typer.Option(help="How often each goodput is measured.", min=1)] = 5
    seconds: Annotated[int, typer.Option(help="Seconds of each, beside one to begin with.", min=2)] = 6
    round_trips: Annotated[int, typer.Option(help="Small requests beside bulk.", min=1)] = 100
    rate: Annotated[
        list[str] | None, typer.Option(help="Rates of links in place of 8Mbit, 100Mbit and 1Gbit.")
    ] = None
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a target is missed.")] = False


def measure(options: ShapedOptions) -> Table:
    """All rows. Raises FailureError where this machine cannot run labs."""
    line = missing()
    if line is not None:
        raise FailureError(line)
    versions = Versions.here("uvloop", "cryptography", "msgspec")
    remarks: list[str] = []
    rows: list[Row] = []
    rates = options.rate or ["8Mbit", "100Mbit", "1Gbit"]
    for rate in rates:
        with shaped.shaped_lab(rate) as lab:
            remarks += [f"not measured: this kernel has no {control}" for control in _lacking(lab)]
            rows += _for_each_control(lab, lambda lab, what: _goodput(lab, what, options))
    for rate in rates:
        with shaped.shaped_lab(rate) as lab:
            rows.append(_both_ways(lab, options))
    for rate in rates:
        with shaped.shaped_lab(rate, queue="1s") as lab:
            rows += _for_each_control(lab, lambda lab, what: _round_trips(lab, what, options))
    rows += [_cap(rate, cap) for rate, cap in CAPS]
    rows += _outage()
    return Table(
        title="Links on shaped networks, beside iperf3 or the bound that they have to keep",
        first="link",
        second="beside it",
        rows=rows,
        versions=versions,
        remarks=[
            f"goodput: medians of {options.repetitions} repetitions of {options.seconds} s taken in turns",
            f"control beside bulk: the slowest but 1% of {options.round_trips}, in a buffer of a second",
            *dict.fromkeys(remarks),
        ],
    )


def _lacking(lab: RunningLab) -> list[str]:
    known = lab_ends.congestion_controls(lab)
    return [control for control in CONTROLS if control not in known]


def _for_each_control(lab: RunningLab, row: Callable[[RunningLab, str], Row]) -> Iterator[Row]:
    rate = lab.lab.hosts[0].uplink
    lacking = _lacking(lab)
    for control in CONTROLS:
        if control not in lacking:
            lab_ends.use_congestion_control(lab, control)
            yield row(lab, f"{_rate(rate)}, {control}")


def _rate(rate: float | None) -> str:
    return f"{(rate or 0) / 1e6:,.0f} Mbit/s"


def _goodput(lab: RunningLab, what: str, options: ShapedOptions) -> Row:
    link, other = [], []
    with lab_ends.pools(lab, ["b", "a"]) as (receiver, sender):
        for _ in range(options.repetitions):
            other.append(shaped.iperf_goodput(lab, "a", "b", seconds=options.seconds) / 1e6)
            link.append(shaped.link_goodput(sender, receiver, seconds=options.seconds) / 1e6)
    return compared(f"goodput, {what}", link, other, unit="Mbit/s", target=GOODPUT_TARGET)


def _both_ways(lab: RunningLab, options: ShapedOptions) -> Row:
    link, other = [], []
    with lab_ends.pools(lab, shaped.HOSTS[:2]) as ends:
        for _ in range(options.repetitions):
            other.append(shaped.iperf_both_ways(lab, seconds=options.seconds) / 1e6)
            link.append(shaped.link_both_ways(ends, seconds=options.seconds) / 1e6)
    what = f"goodput both ways, the slower, {_rate(lab.lab.hosts[0].uplink)}"
    return compared(what, link, other, unit="Mbit/s", target=GOODPUT_TARGET)


def _round_trips(lab: RunningLab, what: str, options: ShapedOptions) -> Row:
    with lab_ends.pools(lab, ["b", "a"]) as (receiver, sender):
        found = shaped.round_trips(sender, receiver, times=options.round_trips)
    beside = sorted(found.beside)[-1 - len(found.beside) // 100]
    return _bounded(f"control beside bulk, {what}", beside * 1e3, found.bound * 1e3, unit="ms")


def _cap(rate: str, cap: int) -> Row:
    with shaped.shaped_lab(rate) as lab, lab_ends.pools(lab, shaped.HOSTS, up=cap) as ends:
        sent = shaped.sent_by_first(lab, ends, seconds=8).on_the_link
    return Row(
        what=f"capped, two pull, {_rate(cap * 8)}",
        first=sent / 1e3,
        second=cap / 1e3,
        unit="kB/s",
        ratio=sent / cap,
        target=CAP_TARGET,
    )


def _outage() -> Sequence[Row]:
    with shaped.shaped_lab("8Mbit") as lab, lab_ends.nodes(lab, ["a", "b"]) as ends:
        found = [shaped.outage(lab, ends, seconds=seconds) for seconds in (0.5, 10.0, 30.0)]
    noticed, healed = (max(times) for times in zip(*((o.noticed, o.healed) for o in found), strict=True))
    return (
        _bounded("a cut link is noticed", noticed, shaped.NOTICED_SECONDS, unit="s"),
        _bounded("a healed link is used again", healed, HEALED_SECONDS, unit="s"),
    )


def _bounded(what: str, found: float, bound: float, *, unit: str) -> Row:
    return Row(what=what, first=found, second=bound, unit=unit, ratio=found / bound, target=BOUND_TARGET)


def main(options: ShapedOptions) -> int:
    """Measure and print; returns the exit status."""
    return measure(options).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("link_shaped", ShapedOptions, main), "link_shaped", sys.argv[1:]))
