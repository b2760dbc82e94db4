"""Cutting the training graph into stages, and what a planner needs to know about every place to cut.

A *bound* is a position in the topological order: a cut at p parts operator p - 1 from operator p. Stage i
runs the operators from ``bounds[i]`` up to but without ``bounds[i + 1]``. Not every position is legal:

* all operators that read a buffer which the model changes, and the one that makes its new value, stay
  together, because each micro-batch must see what the one before it left;
* nothing after the loss is cut off, so that the last stage knows the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from swarm.errors import LocalError
from swarm.graph.buffers import buffer_groups
from swarm.graph.dag import Graph, TensorSpec, Update, consumers, producers
from swarm.graph.routing import Placement, route, sourceless
from swarm.graph.stage import SharedParameter, SharedUse, Stage
from swarm.ids import OperatorIndex, ValueId
from swarm.wire.tensors import TensorHeader


def cut(graph: Graph, bounds: Sequence[int]) -> tuple[Stage, ...]:
    """The stages of ``graph`` between ``bounds``, which start at 0, rise, and end at the operator count.

    Raises LocalError for bounds that are not so, or that lie where :func:`legal_bounds` has False.
    """
    last = len(graph.operators)
    if len(bounds) < 2 or (bounds[0], bounds[-1]) != (0, last) or any(a >= b for a, b in pairwise(bounds)):
        raise LocalError(f"bounds must rise from 0 to {last}, and these do not: {list(bounds)}")
    legal = legal_bounds(graph)
    illegal = [bound for bound in bounds if not legal[bound]]
    if illegal:
        raise LocalError(
            f"a cut at {illegal[0]} would part a buffer's users, or the loss from the last stage"
        )
    operators = [stage for stage, (a, b) in enumerate(pairwise(bounds)) for _ in range(a, b)]
    owners = _owners(graph, operators)
    updates: dict[int, list[Update]] = {}
    for update in graph.updates:
        updates.setdefault(owners[ValueId(update.buffer)], []).append(update)
    placement = Placement(
        stages=len(bounds) - 1, operators=operators, updates=updates, owners=owners, homes={}
    )
    return route(graph, placement)


def legal_bounds(graph: Graph) -> tuple[bool, ...]:
    """For each position from 0 to the number of operators, whether the graph may be cut there."""
    count = len(graph.operators)
    legal = [True] * (count + 1)
    spans = [(group.operators[0], group.operators[-1]) for group in buffer_groups(graph) if group.operators]
    maker = producers(graph).get(ValueId(graph.loss))
    if maker is not None:
        spans.append((maker, OperatorIndex(count - 1)))
    for first, last in spans:
        for position in range(first + 1, last + 1):
            legal[position] = False
    return tuple(legal)


def shared_parameters(graph: Graph, stages: Sequence[Stage]) -> tuple[SharedParameter, ...]:
    """The trained parameters that more than one operator uses, with the stages of their uses."""
    homes = {index: stage.index for stage in stages for index in stage.operators}
    return tuple(
        SharedParameter(
            parameter=parameter,
            owner=homes[operators[0]],
            uses=tuple(SharedUse(operator=index, stage=homes[index]) for index in operators),
        )
        for parameter, operators in trained_uses(graph).items()
        if len(operators) > 1
    )


def trained_uses(graph: Graph) -> dict[ValueId, tuple[OperatorIndex, ...]]:
    """For each trained parameter the operators through which the loss depends on it, in order."""
    uses = {
        value: tuple(index for index in operators if is_trained(graph, index))
        for value, operators in sorted(consumers(graph).items())
        if graph.values[value].kind == "parameter" and graph.values[value].differentiable
    }
    return {value: operators for value, operators in uses.items() if operators}


def changing_tensors(graph: Graph) -> frozenset[str]:
    """The names of the parameters that training changes, and of the buffers that the model does."""
    values = (*trained_uses(graph), *(update.buffer for update in graph.updates))
    return frozenset(graph.values[value].name for value in values)


def is_trained(graph: Graph, index: OperatorIndex) -> bool:
    """Whether a gradient flows back through an operator."""
    return any(value >= 0 and graph.values[value].differentiable for value in graph.operators[index].outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossings:
    """What crosses each position of a graph; the lists have one entry for each from 0 to the last.

    A value counts once at every position between its maker and its last reader, whatever the stages.
    Source-less values are computed again and model inputs are fetched, so neither crosses.
    """

    legal: tuple[bool, ...]
    forward_bytes: tuple[int, ...]
    """Bytes of activations for one micro-batch."""
    backward_bytes: tuple[int, ...]
    """Bytes of their gradients."""
    spans: tuple[tuple[ValueId, int, int], ...]
    """Every value with the first and the last position that it crosses."""

    def values(self, position: int) -> tuple[ValueId, ...]:
        """The values that cross ``position``, in ascending order."""
        return tuple(sorted(value for value, first, last in self.spans if first <= position <= last))


def crossings(graph: Graph) -> Crossings:
    """The crossings of all positions of ``graph``, in time linear in its size."""
    free, readers = sourceless(graph), consumers(graph)
    count = len(graph.operators)
    forward, backward = [0] * (count + 2), [0] * (count + 2)
    spans = []
    for value, maker in producers(graph).items():
        last = max(readers.get(value, ()), default=maker)
        if maker in free or last == maker:
            continue
        spans.append((value, maker + 1, int(last)))
        for steps, present in ((forward, True), (backward, graph.values[value].differentiable)):
            size = sent_bytes(graph.values[value].spec) if present else 0
            steps[maker + 1] += size
            steps[last + 1] -= size
    return Crossings(
        legal=legal_bounds(graph),
        forward_bytes=tuple(accumulate(forward))[: count + 1],
        backward_bytes=tuple(accumulate(backward))[: count + 1],
        spans=tuple(spans),
    )


def sent_bytes(spec: TensorSpec) -> int:
    """Bytes of a tensor on the wire without a codec: its distinct elements."""
    return TensorHeader(dtype=spec.dtype, shape=spec.shape, strides=spec.strides).payload_bytes


def _owners(graph: Graph, operators: Sequence[int]) -> dict[ValueId, int]:
    """The stage of the first use of each parameter and buffer; of all its group for a changed buffer."""
    owners = {
        value: operators[readers[0]]
        for value, readers in consumers(graph).items()
        if graph.values[value].kind in {"parameter", "buffer"}
    }
    for group in buffer_groups(graph):
        stage = operators[group.operators[0]] if group.operators else 0
        owners.update(dict.fromkeys(group.buffers, stage))
    for update in graph.updates:
        owners.setdefault(ValueId(update.value), owners[ValueId(update.buffer)])
    return owners
