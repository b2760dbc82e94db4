"""A stage as a flat program: one instruction an operator, with slots instead of names (decisions D4, D5).

The program makes three promises, so that the bits of a run do not depend on where the graph is cut:

* every value lies in a layout that a link would keep (:func:`swarm.compress.layout.portable`);
* a value requires a gradient exactly where the graph says that it is differentiable, since torch picks
  kernels by that too;
* each value is a tensor of its own to autograd, so that the gradients of its uses, and no others, are added
  from the last to the first (:mod:`swarm.train.program_autograd`).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

from swarm.compress.layout import DTYPES, portable, travels
from swarm.graph.cut import is_trained
from swarm.graph.dag import Graph, Operator, Sequence, Value, operator_inputs, references
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

Inspect = Callable[["Instruction", Collection[torch.Tensor], Collection[torch.Tensor]], None]
"""Called after each operator with the tensors that it read and made."""


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
        instructions = []
        for index in reversed(stage.operators):
            template = Template(graph.operators[index], bound.get(index, {}), device)
            instructions.append(_instruction(graph, index, template, needed))
        self.instructions = tuple(reversed(instructions))
        self._kinds = {
            output: _kind(graph.values[output])
            for index in stage.operators
            for output in graph.operators[index].outputs
            if output >= 0
        }

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
        with torch.no_grad():
            for instruction in self.instructions:
                recording = record and instruction.trained
                if torch.is_grad_enabled() != recording:
                    torch.set_grad_enabled(recording)
                self.execute(instruction, values, seeds, recording=recording, inspect=inspect)

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
        taken = {value: values[value] for value in instruction.reads}
        if recording:
            for value in instruction.sliced:
                taken[value] = with_portable_gradient(taken[value])
        if instruction.operator.random:
            self._seed(seeds.of(instruction.index))
        made = _call(instruction, taken)
        for output, tensor in zip(instruction.operator.outputs, made, strict=True):
            if output >= 0:
                own = _apart(tensor, taken, instruction.bound) if recording else tensor
                values[ValueId(output)] = self.settled(instruction, output, own, recording=recording)
        if inspect is not None:
            inspect(instruction, [*taken.values(), *instruction.bound.values()], made)
        for value in instruction.releases:
            del values[value]

    def settled(
        self, instruction: Instruction, output: int, tensor: torch.Tensor, *, recording: bool
    ) -> torch.Tensor:
        """``tensor`` as the promises of the module want it."""
        dtype, shape, differentiable = self._kinds[output]
        if tensor.dtype != dtype or tensor.shape != shape:
            check_made(tensor, self._graph.values[output], str(instruction))
        if not travels(tensor):
            tensor = differentiably_portable(tensor) if recording else portable(tensor)
        if recording and tensor.requires_grad != differentiable:
            tensor = tensor.detach().requires_grad_(not tensor.requires_grad)
        return tensor


def _kind(value: Value) -> tuple[torch.dtype, torch.Size, bool]:
    """What a tensor must be to be ``value``: its type, its shape, and whether it is differentiated."""
    return DTYPES[value.spec.dtype], torch.Size(value.spec.shape), value.differentiable


def _apart(made: torch.Tensor, *read: Values) -> torch.Tensor:
    """What an operator made, apart from what it read."""
    for given in read:
        for tensor in given.values():
            if made is tensor:
                return apart(made)
    return made


def _call(instruction: Instruction, taken: Values) -> list[torch.Tensor]:
    """The tensors that the operator returns; raises TrainingError where it does not run."""
    args, kwargs = instruction.template.fill(taken)
    try:
        if instruction.check is not None:
            instruction.check(named(instruction.call, args, kwargs))
        made = tensors_of(instruction.call(*args, **kwargs))
    except Exception as error:
        raise failed(str(instruction), error) from error
    if len(made) != len(instruction.operator.outputs):
        check_count(str(instruction), made=len(made), expected=len(instruction.operator.outputs))
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
        releases=tuple(v for v in (*reads, *made) if v not in needed),
        trained=trained,
        check=value_check(operator.target, template.device),
    )
    needed.update(reads)
    return instruction


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
