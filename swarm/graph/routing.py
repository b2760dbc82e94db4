"""From "which stage runs which operator" to stages: what each holds, recomputes, receives and hands on.

The one routing for training and evaluation. A value made in stage a and read in stages c1 < c2 < ... travels
a -> c1 -> c2 -> ..., and its gradient comes back the same way, each stage adding its own part (RAD with
hand-back, decision D4).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from swarm.errors import LocalError
from swarm.graph.dag import Graph, Update, operator_inputs, producers
from swarm.graph.stage import Edge, Stage, TensorUse
from swarm.ids import OperatorIndex, StageIndex, ValueId


def sourceless(graph: Graph) -> frozenset[OperatorIndex]:
    """Operators that depend on nothing but constants and each other, and draw no random numbers.

    Masks, position ids and the like: cheaper to compute again than to send.
    """
    found: set[OperatorIndex] = set()
    made: set[ValueId] = set(graph.of_kind("constant"))
    for index, operator in enumerate(graph.operators):
        if not operator.random and made.issuperset(operator_inputs(operator)):
            found.add(OperatorIndex(index))
            made.update(ValueId(value) for value in operator.outputs if value >= 0)
    return frozenset(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where everything of a graph happens, the input of :func:`route`.

    ``operators`` has the stage of each operator; of a source-less one it only says where an output of the
    graph that it makes lives. ``updates`` are the buffer updates by the stage that owns the buffer.
    """

    stages: int
    operators: Sequence[int]
    updates: Mapping[int, Sequence[Update]]
    owners: Mapping[ValueId, int]
    """The owning stage of parameters and buffers; one that is not named is owned by nobody here."""
    homes: Mapping[ValueId, Collection[int]]
    """The stages that have a parameter or buffer; later ones are sent it. One that is not named is had by all
    that read it."""


@dataclass(slots=True)
class _Draft:
    """A stage while its parts are being found."""

    operators: set[OperatorIndex] = field(default_factory=set)
    reads: dict[ValueId, list[OperatorIndex]] = field(default_factory=dict)
    incoming: list[Edge] = field(default_factory=list)
    outgoing: list[Edge] = field(default_factory=list)
    kept: set[ValueId] = field(default_factory=set)


def route(graph: Graph, placement: Placement) -> tuple[Stage, ...]:
    """The stages of ``graph`` under ``placement``.

    Raises LocalError where an operator would read a value that only a later stage has.
    """
    makers = producers(graph)
    free = sourceless(graph)
    drafts = [_Draft() for _ in range(placement.stages)]
    for index, stage in enumerate(placement.operators):
        if index not in free:
            drafts[stage].operators.add(OperatorIndex(index))
    for value in (*graph.measures, *graph.outputs):
        maker = makers.get(ValueId(value))
        stage = placement.stages - 1 if maker is None else placement.operators[maker]
        drafts[stage].kept.add(ValueId(value))
    for stage, draft in enumerate(drafts):
        _recompute(graph, draft, makers=makers, free=free, updates=placement.updates.get(stage, ()))
    _connect(graph, drafts, makers=makers, free=free, placement=placement)
    return tuple(_finish(graph, StageIndex(i), drafts[i], placement, free) for i in range(placement.stages))


def _recompute(
    graph: Graph,
    draft: _Draft,
    *,
    makers: Mapping[ValueId, OperatorIndex],
    free: frozenset[OperatorIndex],
    updates: Iterable[Update],
) -> None:
    """Add the source-less operators that the draft needs, and list all that it reads."""
    needed = [value for index in sorted(draft.operators) for value in operator_inputs(graph.operators[index])]
    needed += [*draft.kept, *(ValueId(update.value) for update in updates)]
    while needed:
        maker = makers.get(needed.pop())
        if maker in free and maker not in draft.operators:
            draft.operators.add(maker)
            needed += operator_inputs(graph.operators[maker])
    for index in sorted(draft.operators):
        for value in dict.fromkeys(operator_inputs(graph.operators[index])):
            draft.reads.setdefault(value, []).append(index)
    for update in updates:
        draft.reads.setdefault(ValueId(update.buffer), [])
        draft.reads.setdefault(ValueId(update.value), [])
    for value in draft.kept:
        draft.reads.setdefault(value, [])


def _connect(
    graph: Graph,
    drafts: Sequence[_Draft],
    *,
    makers: Mapping[ValueId, OperatorIndex],
    free: frozenset[OperatorIndex],
    placement: Placement,
) -> None:
    """Add the hops of every value that crosses a bound."""
    readers: dict[ValueId, list[int]] = {}
    for stage, draft in enumerate(drafts):
        for value in draft.reads:
            readers.setdefault(value, []).append(stage)
    homes: dict[ValueId, Collection[int]] = {
        value: (placement.operators[maker],) for value, maker in makers.items() if maker not in free
    }
    for value, home in (homes | dict(placement.homes)).items():
        gradient = graph.mode == "train" and graph.values[value].differentiable
        for there in readers.get(value, ()):
            if there in home:
                continue
            here = max((s for s in (*home, *readers[value]) if s < there), default=-1)
            if here < min(home):
                raise LocalError(f"{graph.values[value].name} is read in stage {there}, before any has it")
            drafts[here].outgoing.append(Edge(value=value, stage=StageIndex(there), gradient=gradient))
            drafts[there].incoming.append(Edge(value=value, stage=StageIndex(here), gradient=gradient))


def _finish(
    graph: Graph, index: StageIndex, draft: _Draft, placement: Placement, free: frozenset[OperatorIndex]
) -> Stage:
    received = {edge.value for edge in draft.incoming}
    held = {*draft.reads, *(edge.value for edge in draft.outgoing)} - received
    read = {
        kind: tuple(v for v in sorted(held) if graph.values[v].kind == kind)
        for kind in ("input", "parameter", "buffer", "constant")
    }

    def uses(kind: str) -> tuple[TensorUse, ...]:
        return tuple(
            TensorUse(
                value=value,
                operators=tuple(draft.reads.get(value, ())),
                owned=placement.owners.get(value) == index,
            )
            for value in read[kind]
        )

    return Stage(
        index=index,
        operators=tuple(sorted(draft.operators)),
        recomputed=tuple(sorted(draft.operators & free)),
        inputs=read["input"],
        parameters=uses("parameter"),
        buffers=uses("buffer"),
        constants=read["constant"],
        updates=tuple(placement.updates.get(index, ())),
        incoming=tuple(sorted(draft.incoming, key=lambda edge: edge.value)),
        outgoing=tuple(sorted(draft.outgoing, key=lambda edge: edge.value)),
        loss=graph.loss in draft.kept,
        metric=graph.metric in draft.kept,
        outputs=tuple(sorted(v for v in draft.kept if v in graph.outputs)),
    )
