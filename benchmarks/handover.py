"""How long a job pauses when a stage changes hands, beside what a step takes.

A whole swarm in one process, over loopback: three peers that are all needed, and one that takes over. So the
newcomer loads its stage and makes the steps since the copy on the same cores on which the others train.
"""

import statistics
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import typer

from benchmarks.common import Row, Table, Target, Versions
from bootstrap.commandline import run_program, single_command
from bootstrap.running import run
from swarm.clock import elapsed
from swarm.errors import FailureError
from swarm.services.job import Job
from swarm.services.training.author import PreparedJob, prepare_job
from swarm.services.training.node import TrainingNode
from swarm.testing.cluster import Cluster
from swarm.testing.sizing import memory_of
from swarm.train.job import load_job

EXAMPLE: Final = Path(__file__).parents[1] / "examples" / "gpt.py"
STAGES: Final = 3
WARM: Final = 10
"""Steps before the first hand-over, and between two: what a step takes is measured in them."""

PAUSE_TARGET: Final = Target(most=2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOverOptions:
    """Measure the pause of a hand-over in steps, on the language model of the examples.

    Example: python benchmarks/handover.py --check
    """

    moves: Annotated[int, typer.Option(help="How often a stage changes hands.", min=1)] = 6
    steps: Annotated[int, typer.Option(help="Steps of the job, which end it.", min=1)] = 600
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a target is missed.")] = False


@dataclass(slots=True)
class _Watch:
    """When each step was heard of."""

    job: Job
    moments: list[float] = field(default_factory=list)

    def note(self, job: Job) -> None:
        while job is self.job and len(self.moments) < len(job.losses):
            self.moments.append(elapsed())

    def spans(self, first: int, last: int) -> list[float]:
        """Seconds of the steps ``first`` up to ``last``."""
        return [b - a for a, b in zip(self.moments[first - 1 : last], self.moments[first:last], strict=False)]


@dataclass(frozen=True, slots=True)
class Move:
    """One hand-over: its longest step and the usual one before it, in seconds, and how many it took."""

    longest: float
    usual: float
    steps: int

    @property
    def pause(self) -> float:
        """Seconds that nobody would have waited without it."""
        return self.longest - self.usual


async def moves_of(prepared: PreparedJob, count: int) -> list[Move]:
    """``count`` hand-overs of a job. Raises FailureError where it is over sooner."""
    with tempfile.TemporaryDirectory(prefix="swarm-handover-", ignore_cleanup_errors=True) as folder:
        async with Cluster(Path(folder)) as cluster:
            await cluster.add_bootstrap()
            nodes = [await cluster.add_peer(memory=memory_of(prepared, STAGES)) for _ in range(STAGES)]
            author = await cluster.add_author()
            job = await author.author.publish(prepared, patience=60.0)
            watch = _Watch(job)
            author.jobs.on_change.append(watch.note)
            await cluster.until(lambda: job.step > 0)
            nodes.append(await cluster.add_peer(memory=memory_of(prepared, STAGES)))
            return [await _move(cluster, job, nodes, watch, number % STAGES) for number in range(count)]


async def _move(cluster: Cluster, job: Job, nodes: list[TrainingNode], watch: _Watch, stage: int) -> Move:
    began = len(job.losses)

    async def after(steps: int) -> None:
        await cluster.until(lambda: job.ended or len(job.losses) >= steps, seconds=600)
        if job.ended:
            raise FailureError("the job was over before all stages had moved: give it more --steps")

    await after(began + WARM)
    plan = job.plan
    if plan is None:
        raise FailureError("the job has no plan")
    leaver = next(node for node in nodes if node.identity.peer == plan.stages[stage].holder)
    wished = len(job.losses)
    leaver.set_paused(paused=True)
    await cluster.until(lambda: job.ended or not leaver.held(), seconds=600)
    await after(len(job.losses) + 2)
    leaver.set_paused(paused=False)
    ended = len(job.losses)
    usual = statistics.median(watch.spans(began + 1, wished))
    return Move(max(watch.spans(wished, ended)), usual, ended - wished)


def table_of(moves: list[Move]) -> Table:
    """The median over all hand-overs, and the worst."""
    worst = max(moves, key=lambda move: move.pause / move.usual)
    median = Move(
        longest=statistics.median(move.longest for move in moves),
        usual=statistics.median(move.usual for move in moves),
        steps=round(statistics.median(move.steps for move in moves)),
    )
    pauses = statistics.median(move.pause / move.usual for move in moves)
    rows = [
        Row(
            what="pause, median of hand-overs",
            first=1e3 * median.pause,
            second=1e3 * median.usual,
            unit="ms",
            ratio=pauses,
            target=PAUSE_TARGET,
        ),
        Row(
            what="pause, worst of hand-overs",
            first=1e3 * worst.pause,
            second=1e3 * worst.usual,
            unit="ms",
            ratio=worst.pause / worst.usual,
        ),
    ]
    steps = ", ".join(str(move.steps) for move in moves)
    return Table(
        title="The pause while a stage changes hands, beside a usual step before",
        first="pause",
        second="a step",
        rows=rows,
        versions=Versions.here("torch"),
        remarks=[
            "a pause is what the longest step is longer than a usual one",
            f"from the wish to leave to two steps of the newcomer: {steps} steps",
        ],
    )


def main(options: HandOverOptions) -> int:
    """Measure, print, and say whether all targets are met."""
    prepared = prepare_job(replace(load_job(EXAMPLE), steps=options.steps))
    moves = run(lambda: moves_of(prepared, options.moves))
    return table_of(moves).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("handover", HandOverOptions, main), "handover", sys.argv[1:]))
