"""What codecs do to training: the examples in four stages, one codec on all boundaries, the same seeds."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from benchmarks.codecs.published import TABLE, published_module, shown_table
from benchmarks.codecs.training import CPU, OWN_MASKS, Run, plan_for, prepared_example, run
from benchmarks.common import Versions
from bootstrap.commandline import run_program, single_command
from swarm.train.device import configure_device
from swarm.wire.records.plan import Plan

Key = tuple[str, str, int, int]
"""Model, policy, seed and steps of a run."""

MODELS: Final = ("gpt", "resnet")
POLICIES: Final = (
    "none",
    "bf16",
    "bf16z",
    "int8",
    "int6",
    "int5",
    "int4",
    "topk:10%:8",
    OWN_MASKS,
    "topk:3%:8",
    "topk:1%:8",
    "adatopk:10",
)
DEADLINES: Final = ("deadline:lossless", "deadline:faithful", "deadline:tolerant", "deadline:any")
"""After the others: their floors come from what those showed when last published."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceOptions:
    """Train the examples with each codec, and compare the losses on samples never trained on.

    Example: python benchmarks/convergence.py --seeds 3 --runs runs.jsonl
    """

    seeds: Annotated[int, typer.Option(help="Runs of each row, with seeds 0, 1, ...", min=1)] = 3
    share: Annotated[
        float, typer.Option(help="Of the steps that the examples say; their schedules shrink along.")
    ] = 1.0
    model: Annotated[str, typer.Option(help="gpt or resnet; both where empty.")] = ""
    runs: Annotated[
        str, typer.Option(help="File that keeps each run as it ends; those in it are not made again.")
    ] = ""
    publish: Annotated[
        bool, typer.Option("--publish", help="Write swarm/schedule/published.py, which floors come from.")
    ] = False
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False


def measure(options: ConvergenceOptions, policies: Sequence[str] = (*POLICIES, *DEADLINES)) -> Iterator[Run]:
    """The runs, row by row."""
    configure_device(CPU)
    kept = _kept(options.runs)
    for model in (options.model,) if options.model else MODELS:
        prepared = [prepared_example(model, seed, options.share) for seed in range(options.seeds)]
        for policy in policies:
            plan = plan_for(prepared[0], policy)
            for job in prepared:
                key = (model, policy, job.job.seed, job.job.steps)
                if key not in kept:
                    kept[key] = _alike(kept, key, plan) or run(job, policy, plan)
                    _keep(options.runs, kept[key])
                yield kept[key]


def _alike(kept: Mapping[Key, Run], key: Key, plan: Plan) -> Run | None:
    """A run of the same model, seed and length whose policy chose the same codecs: it would be the same."""
    model, policy, seed, steps = key
    codecs = tuple(str(stage.codec) for stage in plan.stages)
    for each in kept.values():
        same = (each.model, each.seed, each.steps, each.codecs) == (model, seed, steps, codecs)
        if same and OWN_MASKS not in {policy, each.policy}:
            return msgspec.structs.replace(each, policy=policy)
    return None


def _kept(path: str) -> dict[Key, Run]:
    file = Path(path)
    lines = file.read_bytes().splitlines() if path and file.exists() else []
    found = [msgspec.json.decode(line, type=Run) for line in lines]
    return {(each.model, each.policy, each.seed, each.steps): each for each in found}


def _keep(path: str, made: Run) -> None:
    if path:
        with Path(path).open("ab") as file:
            file.write(msgspec.json.encode(made) + b"\n")


def main(options: ConvergenceOptions) -> int:
    """Measure and print; returns the exit status."""
    versions = Versions.here("torch", "zstandard", "numpy")
    runs = list(measure(options))
    if options.publish:
        TABLE.write_text(published_module(runs), "utf-8")
    if options.json:
        document: dict[str, Any] = {
            "runs": runs,
            "versions": versions.programs,
            "machine": versions.machine,
        }
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return 0
    programs = ", ".join(f"{name} {version}" for name, version in versions.programs.items())
    sys.stdout.write(f"{shown_table(runs)}\n\n- {versions.machine}\n- {programs}\n")
    return 0


if __name__ == "__main__":
    sys.exit(
        run_program(single_command("convergence", ConvergenceOptions, main), "convergence", sys.argv[1:])
    )
