"""Execution: training steps of a stage, a flat program, beside the same steps in eager PyTorch."""

import copy
import statistics
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final
from unittest.mock import patch

import torch
import typer
from torch import nn
from torch.nn import functional

from benchmarks.common import Row, Table, Target, Versions, compared
from bootstrap.commandline import run_program, single_command
from swarm.errors import MisuseError
from swarm.graph.cut import cut
from swarm.graph.dag import operator_inputs
from swarm.graph.operators import VIEWS
from swarm.testing.like_machine import like_machine
from swarm.testing.zoo import ZOO, Fields, ZooModel, language, vision
from swarm.train.capture import capture, loss_and_outputs, set_mode
from swarm.train.capture.ctc import ctc_loss
from swarm.train.lockstep import Lockstep, LockstepJob
from swarm.train.optimizer import AdamW, to_manifest
from swarm.train.program import Instruction, Program
from swarm.train.program_seeds import Seeds

CPU: Final = torch.device("cpu")
OPTIMIZER: Final = AdamW(lr=1e-4, weight_decay=0.1, clip_norm=1.0)
ZOO_TARGET: Final = Target(most=1.5)
WIDE_TARGET: Final = Target(most=1.05)
WIDE_MICROSECONDS: Final = 200.0
"""What the median operator takes of a model that counts as wide."""
SPEECH: Final = "deepspeech2"
"""Its loss is not among the operators that peers run for each other."""
WARM_UP: Final = 2
"""Steps of each side before those that count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """Measure training steps of a stage beside those of the module in eager PyTorch.

    Example: python benchmarks/execution.py --check
    """

    repetitions: Annotated[int, typer.Option(help="Steps of each, in turns; the median counts.", min=1)] = 15
    model: Annotated[str, typer.Option(help="One model of the zoo alone.")] = ""
    wide: Annotated[bool, typer.Option(help="Also models whose median operator takes 200 us.")] = True
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a target is missed.")] = False


def _long_text(chance: torch.Generator) -> Fields:
    tokens = torch.randint(0, language.VOCABULARY, (8, 128), generator=chance)
    return {"input_ids": tokens, "labels": tokens.clone()}


def _pictures(chance: torch.Generator) -> Fields:
    pictures = torch.randn(8, 3, 128, 128, generator=chance)
    return {"x_BCHW": pictures, "target": torch.randint(0, vision.CLASSES, (8,), generator=chance)}


WIDE: Final = {
    "gpt2, 512 wide, 8 x 128 tokens": ZooModel(
        make=partial(language.gpt2, width=512, positions=128), loss=language.next_token, sample=_long_text
    ),
    "resnet18, 64 wide, 8 pictures of 128 x 128": ZooModel(
        make=partial(vision.ResNet, vision.Basic, (2, 2, 2, 2), 64),
        loss=functional.cross_entropy,
        sample=_pictures,
    ),
}


class Contest:
    """One model on both sides, from the same weights and on the same micro-batch."""

    def __init__(self, entry: ZooModel) -> None:
        torch.manual_seed(0)
        self._fields = entry.sample(torch.Generator().manual_seed(1))
        self._module, self._loss = entry.make(), entry.loss
        self.captured = capture(self._module, self._fields, loss=self._loss)
        graph = self.captured.graph
        self._inputs = dict(zip(graph.inputs(), self._fields.values(), strict=True))
        job = LockstepJob(
            graph=graph,
            evaluation=None,
            tensors={name: tensor.clone() for name, tensor in self.captured.tensors.items()},
            optimizer=to_manifest(OPTIMIZER),
            micro_batches=1,
            steps=1,
            seed=0,
            batch=lambda _, __: self._inputs,
        )
        self._stage = Lockstep(job, (0, len(graph.operators)), CPU)
        self._module = copy.deepcopy(self._module)
        set_mode(self._module, "train")
        self._optimizer = torch.optim.AdamW(
            self._module.parameters(), lr=OPTIMIZER.lr, weight_decay=OPTIMIZER.weight_decay
        )

    def ours(self) -> float:
        """A step of the stage: forward, backward, measuring, clipping, optimizer. Returns the loss before."""
        return self._stage.step(0).loss

    def eager(self) -> float:
        """The same of the module. Neither side holds gradients while the other one works, which could not use
        that memory, and would have page faults for it."""
        loss, _ = loss_and_outputs(self._module, self._loss, list(self._fields.values()), tuple(self._fields))
        loss.backward()
        nn.utils.clip_grad_norm_(self._module.parameters(), OPTIMIZER.clip_norm)
        self._optimizer.step()
        self._optimizer.zero_grad()
        return float(loss.item())

    def operator_microseconds(self) -> list[float]:
        """What each operator takes that is no view, in a forward pass."""
        graph, found = self.captured.graph, list[float]()
        held = {
            value: self.captured.tensors[graph.values[value].name]
            for kind in ("parameter", "buffer", "constant")
            for value in graph.of_kind(kind)
        }
        (stage,) = cut(graph, [0, len(graph.operators)])
        bound = {
            index: {v: held[v] for v in operator_inputs(graph.operators[index]) if v in held}
            for index in stage.operators
        }
        began = time.thread_time()

        def look(instruction: Instruction, _: Collection[torch.Tensor], __: Collection[torch.Tensor]) -> None:
            nonlocal began
            if instruction.operator.target not in VIEWS:
                found.append(1e6 * (time.thread_time() - began))
            began = time.thread_time()

        seeds = Seeds(job=0, mode="train", step=0, micro_batch=0)
        Program(graph, stage, bound, CPU).run(self._inputs | held, seeds=seeds, record=False, inspect=look)
        return found


def measure(options: ExecutionOptions) -> Table:
    """All rows, on one core; raises MisuseError for a model that is not in the zoo."""
    if options.model not in {"", *ZOO}:
        raise MisuseError(f"--model {options.model} is not one of {', '.join(ZOO)}")
    names = [options.model] if options.model else list(ZOO)
    versions = Versions.here("torch", "transformers")
    with like_machine():
        rows = [_steps(name, Contest(ZOO[name]), options, ZOO_TARGET) for name in names]
        if SPEECH in names:
            with patch.object(functional, "ctc_loss", ctc_loss):
                what = f"{SPEECH}, the same CTC in operators on both sides"
                rows.append(_steps(what, Contest(ZOO[SPEECH]), options, None))
        for name, entry in WIDE.items() if options.wide else ():
            rows += _wide(name, Contest(entry), options)
    return Table(
        title="training steps of one stage with all operators",
        first="stage",
        second="eager",
        rows=rows,
        versions=versions,
        remarks=[
            "times are processor time of one thread; both sides have the settings of like machines",
            f"medians of {options.repetitions} steps taken in turns",
        ],
    )


def _wide(name: str, contest: Contest, options: ExecutionOptions) -> list[Row]:
    median = statistics.median(contest.operator_microseconds())
    return [
        _steps(name, contest, options, WIDE_TARGET),
        Row(
            what=f"median operator that is no view, {name}, beside what counts as wide",
            first=median,
            second=WIDE_MICROSECONDS,
            unit="us",
            ratio=median / WIDE_MICROSECONDS,
        ),
    ]


def _steps(name: str, contest: Contest, options: ExecutionOptions, target: Target | None) -> Row:
    for _ in range(WARM_UP):
        contest.ours()
        contest.eager()
    ours, eager = [], []
    for _ in range(options.repetitions):
        ours.append(_milliseconds(contest.ours))
        eager.append(_milliseconds(contest.eager))
    return compared(f"step of {name}", ours, eager, unit="ms", target=target)


def _milliseconds(work: Callable[[], object]) -> float:
    """Of this thread's processor time."""
    began = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - began)


def main(options: ExecutionOptions) -> int:
    """Measure and print; returns the exit status."""
    return measure(options).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("execution", ExecutionOptions, main), "execution", sys.argv[1:]))
