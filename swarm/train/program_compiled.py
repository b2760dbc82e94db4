"""A program whose operators ``torch.compile`` makes one function of, where they stand together.

For peers that ask for it: what is fused rounds elsewhere, so like machines no longer come to like bits
(``docs/decisions/0027-compiled-stages.md``). What draws at random keeps its own seed, what is judged by the
elements that it reads is still judged, and both run as ever, between the functions.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import getitem
from typing import Any, Final

import torch

from swarm.compress.layout import DTYPES
from swarm.errors import TrainingError
from swarm.graph.dag import Graph
from swarm.graph.operators import VIEWS
from swarm.graph.stage import Stage
from swarm.ids import ValueId
from swarm.log import get_log
from swarm.train.capture.quiet import quiet
from swarm.train.failures import failing, reason
from swarm.train.program import Inspect, Instruction, Made, Program
from swarm.train.program_arguments import Template, resolve
from swarm.train.program_seeds import Seeds
from swarm.train.tensors import travelling_strides

FEWEST: Final = 2
"""Operators, views apart, that are worth a function of their own."""

_log = get_log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """Neighbouring operators as one function of tensors."""

    call: Callable[..., tuple[torch.Tensor, ...]]
    reads: tuple[ValueId, ...]
    """Values at hand that it takes, in order."""
    bound: tuple[torch.Tensor, ...]
    """Parameters and constants that it takes after those."""
    makes: tuple[tuple[Instruction, Made], ...]
    """What it returns, in order, and whose that is."""
    releases: tuple[ValueId, ...]
    """Values at hand that nothing needs afterwards."""


class CompiledProgram:
    """The operators of one stage, compiled when the first micro-batch comes.

    Not when the stage is loaded: that has to be done within seconds, and compiling takes minutes. Where it
    fails, a warning says why, and the stage runs uncompiled from then on.
    """

    def __init__(self, plain: Program, graph: Graph, stage: Stage, device: torch.device) -> None:
        self.instructions = plain.instructions
        self._plain = plain
        self._graph = graph
        self._stage = stage
        self._device = device
        self._parts: tuple[Function | Instruction, ...] = ()

    def run(
        self,
        values: dict[ValueId, torch.Tensor],
        *,
        seeds: Seeds,
        record: bool,
        inspect: Inspect | None = None,
    ) -> None:
        """As :meth:`swarm.train.program.Program.run`; uncompiled where nothing is recorded."""
        if not record:
            self._plain.run(values, seeds=seeds, record=False, inspect=inspect)
            return
        self._parts = self._parts or self._compiled(seeds)
        self._run(self._parts, values, seeds)

    def _run(
        self, parts: Iterable[Function | Instruction], values: dict[ValueId, torch.Tensor], seeds: Seeds
    ) -> None:
        for part in parts:
            if isinstance(part, Instruction):
                with torch.set_grad_enabled(part.trained):
                    self._plain.execute(part, values, seeds, recording=part.trained)
                continue
            with torch.enable_grad():
                made = part.call(*(values[value] for value in part.reads), *part.bound)
                for (maker, kind), tensor in zip(part.makes, made, strict=True):
                    values[kind.value] = self._plain.settled(maker, kind, tensor, recording=True)
            for value in part.releases:
                del values[value]

    def _compiled(self, seeds: Seeds) -> tuple[Function | Instruction, ...]:
        """The parts to run, tried forward and backward on tensors that only look like those of training."""
        try:
            with failing("compiling"), quiet():
                parts = tuple(self._fused())
                values = self._examples()
                leaves = [tensor for tensor in values.values() if tensor.requires_grad]
                leaves += [
                    tensor
                    for instruction in self.instructions
                    for tensor in instruction.bound.values()
                    if tensor.requires_grad
                ]
                self._run(parts, values, seeds)
                roots = [tensor for tensor in values.values() if tensor.requires_grad]
                if roots and leaves:
                    torch.autograd.grad(roots, leaves, list(map(torch.ones_like, roots)), allow_unused=True)
        except TrainingError as error:
            cause = getattr(error.__cause__, "inner_exception", error.__cause__)
            why = reason(cause) if isinstance(cause, Exception) else str(error)
            _log.warning(f"stage {self._stage.index + 1} runs uncompiled, because compiling failed: {why}")
            return self.instructions
        return parts

    def _examples(self) -> dict[ValueId, torch.Tensor]:
        """Ones and, for whole numbers, which may be indices, zeros, in the shapes and layouts of capture."""
        made = {output for instruction in self.instructions for output in instruction.operator.outputs}
        sent = {ValueId(update.value) for update in self._stage.updates}
        sent |= {edge.value for edge in self._stage.outgoing}
        wanted = sent.union(*(instruction.reads for instruction in self.instructions))
        differentiated = {edge.value for edge in self._stage.incoming if edge.gradient}
        return {
            value: self._example(value).requires_grad_(value in differentiated)
            for value in sorted(wanted - made)
        }

    def _example(self, value: ValueId) -> torch.Tensor:
        spec = self._graph.values[value].spec
        dtype = DTYPES[spec.dtype]
        memory = torch.empty_strided(spec.shape, travelling_strides(spec), dtype=dtype, device=self._device)
        return memory.fill_(1 if dtype.is_floating_point else 0)

    def _fused(self) -> Iterable[Function | Instruction]:
        for fusible, run in groupby(self.instructions, _is_fusible):
            together = tuple(run)
            if fusible and sum(i.operator.target not in VIEWS for i in together) >= FEWEST:
                yield self._function(together)
            else:
                yield from together

    def _function(self, together: tuple[Instruction, ...]) -> Function:
        graph = torch.fx.Graph()
        made = {ValueId(v) for i in together for v in i.operator.outputs if v >= 0}
        released = {value for instruction in together for value in instruction.releases}
        reads = tuple(dict.fromkeys(v for i in together for v in i.reads if v not in made))
        bound = {id(tensor): tensor for i in together for tensor in i.bound.values()}
        values: dict[ValueId, Any] = {value: graph.placeholder(f"value_{value}") for value in reads}
        tensors = {key: graph.placeholder(f"bound_{place}") for place, key in enumerate(bound)}
        makes: list[tuple[Instruction, Made]] = []
        for instruction in together:
            nodes = values | {value: tensors[id(tensor)] for value, tensor in instruction.bound.items()}
            values |= self._nodes(graph, instruction, nodes)
            kinds = (kind for kind in instruction.makes if kind is not None)
            makes += [(instruction, kind) for kind in kinds if kind.value not in released]
        graph.output(tuple(values[kind.value] for _, kind in makes))
        module = torch.fx.GraphModule(torch.nn.Module(), graph)
        return Function(
            call=torch.compile(module.forward, dynamic=False, options={"compile_threads": 1}),
            reads=reads,
            bound=tuple(bound.values()),
            makes=tuple(makes),
            releases=tuple(value for value in reads if value in released),
        )

    def _nodes(
        self, graph: torch.fx.Graph, instruction: Instruction, nodes: Mapping[ValueId, Any]
    ) -> dict[ValueId, Any]:
        """What one operator makes of ``nodes``: detached where the graph says that no gradient flows."""
        operator = instruction.operator
        args, kwargs = Template(operator, {}, self._device).fill(nodes)
        call: Any = instruction.call
        result = graph.call_function(call, tuple(args), kwargs)
        found = {}
        for place, output in enumerate(operator.outputs):
            if output < 0:
                continue
            value = self._graph.values[output]
            node = result if _is_one(call) else graph.call_function(getitem, (result, place))
            if DTYPES[value.spec.dtype].is_floating_point and not value.differentiable:
                node = graph.call_function(torch.ops.aten.detach.default, (node,))
            found[ValueId(output)] = node
        return found


def _is_fusible(instruction: Instruction) -> bool:
    """Whether it is a call of an operator on tensors, and no more than that."""
    operator = instruction.operator
    if operator.random or instruction.check is not None or instruction.call is not resolve(operator.target):
        return False
    returns = [str(found.type) for found in _returns(instruction.call)]
    return returns == ["List[Tensor]"] or all(found == "Tensor" for found in returns)


def _is_one(call: Any) -> bool:
    """Whether it returns a tensor, and not several."""
    return [str(found.type) for found in _returns(call)] == ["Tensor"]


def _returns(call: Any) -> Any:
    return call._schema.returns  # noqa: SLF001  its only name
