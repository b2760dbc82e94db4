"""A stage as a flat program: one instruction an operator, with slots instead of names (decisions D4, D5).

The program makes three promises, so that the bits of a run do not depend on where the graph is cut:

* every value lies in a layout that a link would keep (:func:`swarm.compress.layout.portable`);
* a value requires a gradient exactly where the graph says that it is differentiable, since torch picks
  kernels by that too;
* each value is a tensor of its own to autograd, so that the gradients of its uses, and no others, are added
  from the last to the first (:mod:`swarm.train.program_autograd`).
"""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from swarm.compress.layout import DTYPES, portable, travels
from swarm.graph.cut import is_trained
from swarm.graph.dag import Graph, Operator, Sequence, operator_inputs, references
from swarm.graph.stage import Stage
from swarm.ids import OperatorIndex, ValueId
from swarm.train.contracts import Given, named
from swarm.train.contracts_values import value_check
from swarm.train.device import seeder
from swarm.train.failures import described, failed
from swarm.train.inference import check_count, check_operators, tensors_of
from swarm.train.program_arguments import Template, Values, resolve
from swarm.train.program_autograd import apart, differentiably_portable, with_portable_gradient
from swarm.train.program_kernels import sound
from swarm.train.program_seeds import Seeds
from swarm.train.program_steady import steady_operators
from swarm.train.tensors import check_made

SLICED_BACKWARD: Final = frozenset(
    f"aten.{name}"
    for name in (
        "constant_pad_nd.default",
        "pad.default",
        "slice_scatter.default",
        "select_scatter.default",
        "diagonal_scatter.default",
        "diag.default",
        "diagflat.default",
        "diag_embed.default",
    )
)
"""Operators whose gradient with respect to an input is a slice of their output's, as it is for all that take
a list of tensors (``cat``). Such a slice may lie too thin in memory to travel."""

_DRAWING: Final = threading.Lock()
"""Held from the seeding of a generator until the operator has drawn: nodes of one process share them."""

Inspect = Callable[["Instruction", Collection[torch.Tensor], Collection[torch.Tensor]], None]
"""Called after each operator with the tensors that it read and made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a tensor that an operator returns must be."""

    value: ValueId
    dtype: torch.dtype
    shape: torch.Size
    differentiable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One operator of the program."""

    index: OperatorIndex
    operator: Operator
    call: Callable[..., Any]
    template: Template
    reads: tuple[ValueId, ...]
    """Values at hand that it reads."""
    bound: Values
    """Parameters and constants that it reads."""
    sliced: tuple[ValueId, ...]
    """Those of them whose gradient may come in a layout that does not travel."""
    makes: tuple[Made | None, ...]
    """What it returns, in order; None for what nothing uses."""
    releases: tuple[ValueId, ...]
    """Values that nothing needs afterwards."""
    trained: bool
    """Whether a gradient flows back through it."""
    check: Callable[[Given], None] | None
    """What has to hold of the elements that it reads, where torch does not look."""

    def __str__(self) -> str:
        return described(self.operator)


class Program:
    """The operators of one stage, ready to run.

    ``bound`` has, for each operator, the tensors that are the same in every run: parameters and constants.
    All other values are given to :meth:`run`. Raises as :func:`swarm.train.inference.check_operators` does.
    """

    def __init__(
        self,
        graph: Graph,
        stage: Stage,
        bound: Mapping[OperatorIndex, Values],
        device: torch.device,
    ) -> None:
        check_operators(graph, stage.operators)
        self._graph = graph
        self._seed = seeder(device)
        needed = {edge.value for edge in stage.outgoing} | {ValueId(update.value) for update in stage.updates}
        if stage.loss:
            needed |= graph.measures
        steady = steady_operators(graph, stage.operators)
        others = sorted(set(stage.operators).difference(steady))
        instructions = []
        for index in reversed([*steady, *others]):
            template = Template(graph.operators[index], bound.get(index, {}), device)
            instructions.append(_instruction(graph, index, template, needed))
        self.instructions = tuple(reversed(instructions))
        self._steady, self._others = self.instructions[: len(steady)], self.instructions[len(steady) :]
        self._kept: dict[ValueId, torch.Tensor] | None = None
        """What the steady operators make for the others, once they have run."""

    def run(
        self,
        values: dict[ValueId, torch.Tensor],
        *,
        seeds: Seeds,
        record: bool,
        inspect: Inspect | None = None,
    ) -> None:
        """Run all operators on ``values``, and leave in it what the stage keeps.

        ``record``: build the autograd graph. Raises TrainingError, naming the operator, where torch refuses.
        """
        instructions = self.instructions
        if inspect is None:
            instructions = self._others
            values |= self._kept_values(seeds)
        recording = False
        with torch.no_grad():
            for instruction in instructions:
                if recording != (record and instruction.trained):
                    recording = not recording
                    torch.set_grad_enabled(recording)
                self.execute(instruction, values, seeds, recording=recording, inspect=inspect)

    def _kept_values(self, seeds: Seeds) -> dict[ValueId, torch.Tensor]:
        if self._kept is None:
            kept: dict[ValueId, torch.Tensor] = {}
            with torch.no_grad():
                for instruction in self._steady:
                    self.execute(instruction, kept, seeds, recording=False)
            self._kept = kept
        return self._kept

    def execute(
        self,
        instruction: Instruction,
        values: dict[ValueId, torch.Tensor],
        seeds: Seeds,
        *,
        recording: bool,
        inspect: Inspect | None = None,
    ) -> None:
        """Run one operator; ``recording`` is whether autograd does, which is for the caller to arrange."""
        taken: Values = values
        if inspect is not None or (recording and instruction.sliced):
            taken = _taken(instruction, values, recording=recording)
        args, kwargs = instruction.template.fill(taken)
        try:
            if instruction.check is not None:
                instruction.check(named(instruction.call, args, kwargs))
            if instruction.operator.random:
                with _DRAWING:
                    self._seed(seeds.of(instruction.index))
                    made = tensors_of(instruction.call(*args, **kwargs))
            else:
                made = tensors_of(instruction.call(*args, **kwargs))
        except Exception as error:
            raise failed(str(instruction), error) from error
        if len(made) != len(instruction.makes):
            check_count(str(instruction), made=len(made), expected=len(instruction.makes))
        for kind, tensor in zip(instruction.makes, made, strict=True):
            if kind is not None:
                own = _apart(tensor, instruction, taken) if recording else tensor
                values[kind.value] = self.settled(instruction, kind, own, recording=recording)
        if inspect is not None:
            inspect(instruction, [*taken.values(), *instruction.bound.values()], made)
        for value in instruction.releases:
            del values[value]

    def settled(
        self, instruction: Instruction, kind: Made, tensor: torch.Tensor, *, recording: bool
    ) -> torch.Tensor:
        """``tensor``, which is to be of that ``kind``, as the promises of the module want it."""
        if tensor.dtype != kind.dtype or tensor.shape != kind.shape:
            check_made(tensor, self._graph.values[kind.value], str(instruction))
        if not travels(tensor):
            tensor = differentiably_portable(tensor) if recording else portable(tensor)
        if recording and tensor.requires_grad != kind.differentiable:
            tensor = tensor.detach().requires_grad_(not tensor.requires_grad)
        return tensor


def _taken(instruction: Instruction, values: Values, *, recording: bool) -> Values:
    """The values at hand that an operator reads, with the gradients that it needs."""
    taken = {value: values[value] for value in instruction.reads}
    if recording:
        taken |= {value: with_portable_gradient(taken[value]) for value in instruction.sliced}
    return taken


def _apart(made: torch.Tensor, instruction: Instruction, taken: Values) -> torch.Tensor:
    """What an operator made, apart from what it read."""
    for value in instruction.reads:
        if taken[value] is made:
            return apart(made)
    for tensor in instruction.bound.values():
        if tensor is made:
            return apart(made)
    return made


def _instruction(
    graph: Graph,
    index: OperatorIndex,
    template: Template,
    needed: set[ValueId],
) -> Instruction:
    """The instruction of one operator, called from the last operator to the first.

    ``needed`` are the values that anybody later needs; they are brought up to date.
    """
    operator = graph.operators[index]
    trained = is_trained(graph, index)
    reads = tuple(dict.fromkeys(v for v in operator_inputs(operator) if v not in template.bound))
    sliced = _sliced(operator) if trained else frozenset()
    made = [ValueId(v) for v in operator.outputs if v >= 0]
    instruction = Instruction(
        index=index,
        operator=operator,
        call=sound(resolve(operator.target), operator, graph, template.device),
        template=template,
        reads=reads,
        bound=template.bound,
        sliced=tuple(v for v in reads if v in sliced and graph.values[v].differentiable),
        makes=tuple(_kind(graph, output) for output in operator.outputs),
        releases=tuple(v for v in (*reads, *made) if v not in needed),
        trained=trained,
        check=value_check(operator.target, template.device),
    )
    needed.update(reads)
    return instruction


def _kind(graph: Graph, output: int) -> Made | None:
    if output < 0:
        return None
    value = graph.values[output]
    return Made(
        value=ValueId(output),
        dtype=DTYPES[value.spec.dtype],
        shape=torch.Size(value.spec.shape),
        differentiable=value.differentiable,
    )


def _sliced(operator: Operator) -> frozenset[ValueId]:
    """Inputs whose gradient may be a slice of the output's."""
    everything = operator.target in SLICED_BACKWARD
    arguments = [*operator.args, *(argument for _, argument in operator.kwargs)]
    return frozenset(
        value
        for argument in arguments
        if everything or isinstance(argument, Sequence)
        for value in references(argument)
    )
