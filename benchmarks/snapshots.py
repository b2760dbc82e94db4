"""Training in four homes with 8 Mbit/s in and out, while recovery lines are kept and while none are.

Takes root on Linux. A peer in each home of the lab ``home-8mbit`` holds a stage of a job whose state, that is
parameters and both averages of Adam, is 24 times what a step sends over a boundary one way. All of it but one
stage goes to the coordinator for each line (decision 0025). Two jobs take turns: one keeps lines, the other
names who may have its weights, and so keeps none.

A line takes as long to make as its bytes take, and then the links rest for twenty times as long. So the steps
that count are those from one line to another: whole rounds of making and rest. For users lines are a minute
apart at least; here they follow as soon as the rest lets them, which is the most that they can cost.
"""

import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Final

import typer

from benchmarks.common import Table, Target, Versions, compared
from benchmarks.lines.scenario import Turn, homes
from benchmarks.lines.wide import Shape
from bootstrap.commandline import run_program, single_command
from swarm.errors import FailureError
from swarm.testing.netlab.description import load_lab
from swarm.testing.netlab.running import start_lab
from swarm.testing.netlab.tools import missing
from swarm.wire.limits import MIB

LAB: Final = "home-8mbit"
INTERVAL_SECONDS: Final = 1.0
STEP_TARGET: Final = Target(most=1.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotOptions:
    """Measure what snapshots cost training between homes. Takes root on Linux.

    Example: sudo python benchmarks/snapshots.py --check
    """

    repetitions: Annotated[int, typer.Option(help="How often the two jobs take turns.", min=1)] = 2
    lines: Annotated[int, typer.Option(help="Rounds of making a line and resting, each time.", min=1)] = 1
    steps: Annotated[int, typer.Option(help="Of each turn in which none are kept.", min=2)] = 60
    width: Annotated[int, typer.Option(help="Of the layers.", min=8)] = 256
    layers: Annotated[int, typer.Option(help="How many.", min=4)] = 8
    batch: Annotated[int, typer.Option(help="Samples of a micro-batch.", min=1)] = 64
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a target is missed.")] = False


def measure(options: SnapshotOptions) -> Table:
    """All rows. Raises FailureError where this machine cannot run labs."""
    line = missing()
    if line is not None:
        raise FailureError(line)
    shape = Shape(width=options.width, layers=options.layers, batch=options.batch)
    versions = Versions.here("torch")
    kept = []
    with start_lab(load_lab(LAB)) as lab, homes(lab, shape, interval=INTERVAL_SECONDS) as swarm:
        none = [swarm.without_lines(options.steps)]
        for _ in range(options.repetitions):
            kept.append(swarm.with_lines(options.lines))
            none.append(swarm.without_lines(options.steps))
    return table_of(shape, kept, none, versions)


def table_of(shape: Shape, kept: Sequence[Turn], none: Sequence[Turn], versions: Versions) -> Table:
    """What turns with lines come to, beside the means of the turns before and after, which had none."""
    lines, steps = (sum(counts) for counts in zip(*((turn.lines, turn.steps) for turn in kept), strict=True))
    return Table(
        title=f"Steps in four homes ({LAB}) while lines are kept, beside steps while none are",
        first="kept",
        second="none",
        rows=[
            compared("a step", _steps(kept), _around(_steps(none)), unit="s", target=STEP_TARGET),
            compared("the slowest step", _slowest(kept), _around(_slowest(none)), unit="s"),
            compared("what all homes send in a step", _sent(kept), _around(_sent(none)), unit="MiB"),
        ],
        versions=versions,
        remarks=[
            f"lines kept: {lines}, of {shape.state_bytes / MIB:.1f} MiB each, in {steps} steps",
            f"beside them {sum(turn.steps for turn in none)} steps in turns before and after",
            f"a step sends {shape.boundary_bytes / MIB:.2f} MiB over each boundary each way",
        ],
    )


def _around(values: Sequence[float]) -> list[float]:
    """The means of neighbours in time."""
    return [statistics.mean(pair) for pair in pairwise(values)]


def _steps(turns: Sequence[Turn]) -> list[float]:
    return [turn.seconds_a_step for turn in turns]


def _slowest(turns: Sequence[Turn]) -> list[float]:
    return [max(later.at - moment.at for moment, later in pairwise(turn.moments)) for turn in turns]


def _sent(turns: Sequence[Turn]) -> list[float]:
    return [turn.sent / turn.steps / MIB for turn in turns]


def main(options: SnapshotOptions) -> int:
    """Measure and print; returns the exit status."""
    return measure(options).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("snapshots", SnapshotOptions, main), "snapshots", sys.argv[1:]))
