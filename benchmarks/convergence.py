"""What codecs do to training: the examples in four stages, one codec on all boundaries, the same seeds.

Everything runs in one process, on the bits that a swarm of like
machines would have (``swarm.train.lockstep``), so that only the codec differs from one row to the next.
"""

import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import torch
import typer

from benchmarks.common import Versions
from bootstrap.commandline import run_program, single_command
from swarm.compress.boundaries import Boundaries, Passage
from swarm.compress.ladder import TakenApart
from swarm.ids import JobId, PeerId, ValueId
from swarm.schedule.capacity import memory_for_peers
from swarm.schedule.plan import make_plan
from swarm.schedule.workload import PeerOffer, Workload
from swarm.services.training.author import PreparedJob, prepare_job
from swarm.services.training.verify import lockstep_job
from swarm.train.device import configure_device
from swarm.train.job import load_job
from swarm.train.lockstep import Lockstep
from swarm.train.optimizer import to_manifest
from swarm.wire.codecs import CodecSpec, parse_policy
from swarm.wire.records.plan import Plan

CPU: Final = torch.device("cpu")
STAGES: Final = 4
EXAMPLES: Final = Path(__file__).parents[1] / "examples"
MODELS: Final = ("gpt", "resnet")
POLICIES: Final = (
    "none",
    "bf16",
    "int8",
    "int6",
    "int5",
    "int4",
    "topk:10%:8",
    "topk:3%:8",
    "topk:1%:8",
    "adatopk:10",
)
OWN_MASKS: Final = "topk:10%:8, gradients on masks of their own"
"""The row that shows why a gradient goes back on its activation's mask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvergenceOptions:
    """Train the examples with each codec, and compare the losses on samples never trained on.

    Example: python benchmarks/convergence.py --seeds 3
    """

    seeds: Annotated[int, typer.Option(help="Runs of each row, with seeds 0, 1, ...", min=1)] = 3
    steps: Annotated[int, typer.Option(help="Steps of each run; 0: as the example says.", min=0)] = 0
    model: Annotated[str, typer.Option(help="gpt or resnet; both where empty.")] = ""
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run."""

    held_out: float
    """Loss on samples never trained on, with the codecs on the boundaries as in training."""
    held_out_plain: float
    """The same without codecs."""
    sent: int
    """Bytes of all boundary tensors, both ways, in training."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A row of the table: one model with one policy, its runs by seed."""

    model: str
    policy: str
    runs: Sequence[Outcome]


class Counting(Boundaries):
    """Boundaries that count the bytes of what they send in training."""

    bytes = 0

    def send(
        self, tensors: Mapping[ValueId, torch.Tensor], passage: Passage, codecs: Mapping[ValueId, CodecSpec]
    ) -> dict[ValueId, TakenApart]:
        """Those of :class:`Boundaries`."""
        sent = super().send(tensors, self._passage(passage), codecs)
        if passage.phase == "train":
            self.bytes += sum(apart.encode().payload.nbytes for apart in sent.values())
        return sent

    def _passage(self, passage: Passage) -> Passage:
        return passage


class OwnMasks(Counting):
    """Boundaries that choose the entries of a gradient by its own magnitudes, as if it were an activation."""

    def _passage(self, passage: Passage) -> Passage:
        return (
            replace(passage, direction="forward", phase="evaluate") if passage.phase == "train" else passage
        )


def measure(options: ConvergenceOptions, policies: Sequence[str] = (*POLICIES, OWN_MASKS)) -> Iterator[Line]:
    """The lines, one after the other."""
    configure_device(CPU)
    for model in (options.model,) if options.model else MODELS:
        prepared = [_prepared(model, seed, options.steps) for seed in range(options.seeds)]
        for policy in policies:
            plan = _plan(prepared[0], policy.split(",", maxsplit=1)[0])
            kind = OwnMasks if policy == OWN_MASKS else Counting
            yield Line(model=model, policy=policy, runs=[_run(job, plan, kind) for job in prepared])


def _prepared(model: str, seed: int, steps: int) -> PreparedJob:
    """The example with its order of samples, and its initial weights, by ``seed``."""
    job = load_job(EXAMPLES / f"{model}.py")
    torch.manual_seed(seed)
    return prepare_job(replace(job, model=type(job.model)(), seed=seed, steps=steps or job.steps))


def _run(prepared: PreparedJob, plan: Plan, kind: type[Counting]) -> Outcome:
    bounds = [0, *(stage.last for stage in plan.stages)]
    job = lockstep_job(prepared, cancelled=lambda: False)
    lockstep = Lockstep(job, bounds, CPU, [stage.codec for stage in plan.stages])
    counting = [kind(job.seed, CPU) for _ in plan.stages]
    lockstep.boundaries[:] = counting
    for step in range(job.steps):
        lockstep.step(step)
    plain = Lockstep(replace(job, tensors=lockstep.tensors()), bounds, CPU)
    return Outcome(
        held_out=_held_out(lockstep),
        held_out_plain=_held_out(plain),
        sent=sum(boundaries.bytes for boundaries in counting),
    )


def _held_out(lockstep: Lockstep) -> float:
    job = lockstep.job
    if job.held_out is None:
        raise RuntimeError("the example holds no samples out")
    return statistics.fmean(
        lockstep.evaluate(index, job.held_out(index)) for index in range(job.held_out_batches)
    )


def _plan(prepared: PreparedJob, policy: str) -> Plan:
    """What a coordinator would make of it with four equal peers."""
    workload = Workload(
        graph=prepared.captured.train,
        evaluation=prepared.captured.evaluate,
        optimizer=to_manifest(prepared.job.optimizer),
        micro_batches=prepared.job.micro_batches,
        policy=parse_policy(policy),
    )
    memory = memory_for_peers(workload, STAGES)
    peers = [PeerOffer(peer=PeerId(f"{number}" * 32), memory=memory, flops=1e9) for number in "abcd"]
    return make_plan(JobId("j" * 52), workload, peers)


def shown(lines: Sequence[Line]) -> str:
    """The table in Markdown: means and spreads (largest less smallest) over the seeds."""
    dense = {line.model: _mean_sent(line) for line in lines if line.policy == "none"}
    rows = ["| model | policy | held out | spread | without the codec | bytes |", "|---|---|---|---|---|---|"]
    for line in lines:
        losses = [run.held_out for run in line.runs]
        sent = _mean_sent(line)
        cells = (
            line.model,
            line.policy,
            f"{statistics.fmean(losses):.4f}",
            f"{max(losses) - min(losses):.4f}",
            f"{statistics.fmean(run.held_out_plain for run in line.runs):.4f}",
            f"{sent / 1e6:,.1f} MB, {sent / dense[line.model]:.1%}",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _mean_sent(line: Line) -> float:
    return statistics.fmean(run.sent for run in line.runs)


def main(options: ConvergenceOptions) -> int:
    """Measure and print; returns the exit status."""
    versions = Versions.here("torch", "zstandard", "numpy")
    lines = list(measure(options))
    if options.json:
        document: dict[str, Any] = {
            "lines": lines,
            "versions": versions.programs,
            "machine": versions.machine,
        }
        sys.stdout.write(msgspec.json.encode(document).decode() + "\n")
        return 0
    programs = ", ".join(f"{name} {version}" for name, version in versions.programs.items())
    sys.stdout.write(f"{shown(lines)}\n\n- {versions.machine}\n- {programs}\n")
    return 0


if __name__ == "__main__":
    sys.exit(
        run_program(single_command("convergence", ConvergenceOptions, main), "convergence", sys.argv[1:])
    )
