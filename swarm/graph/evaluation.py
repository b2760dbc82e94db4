"""Laying the evaluation graph over the stages of a cut training graph.

Both graphs are captured over one set of tensors and know each by the same name. An operator of the
evaluation graph runs where the tensors it reads live, and never before a stage that it reads from.
"""

from collections.abc import Collection, Mapping, Sequence

from swarm.graph.buffers import buffer_groups
from swarm.graph.cut import changing_tensors
from swarm.graph.dag import Graph, consumers, operator_inputs, producers
from swarm.graph.routing import Placement, route, sourceless
from swarm.graph.stage import Stage
from swarm.ids import OperatorIndex, ValueId


def evaluation_stages(train: Graph, stages: Sequence[Stage], evaluation: Graph) -> tuple[Stage, ...]:
    """The stages of ``evaluation`` beside ``stages``, the cut of ``train``; as many, some maybe empty.

    An operator is in the latest stage of its inputs, or in the first one after it that has all of its trained
    parameters and changed buffers (a shared parameter lives in every stage that uses it). Where no later
    stage has them, they travel to the operator like any value. Operators on model inputs alone run where they
    are first needed, so that only those stages fetch inputs. Loss and metric are in the last stage.
    Evaluation changes no buffer, so the stages have no updates, and they own nothing.
    """
    homes = _homes(train, stages, evaluation)
    placed = _earliest(evaluation, homes, len(stages))
    _delay_input_operators(evaluation, placed)
    placement = Placement(stages=len(stages), operators=placed, updates={}, owners={}, homes=homes)
    return route(evaluation, placement)


def beside(train: Graph, evaluation: Graph) -> list[int]:
    """For each operator of ``evaluation`` an operator of ``train`` beside which it runs, wherever the cuts.

    Found by a stage for each operator of ``train``. Where operators use one parameter at several places, a
    coarser cut may have it elsewhere.
    """
    changing = changing_tensors(train)
    uses = {train.values[value].name: readers for value, readers in consumers(train).items()}
    homes = {
        ValueId(index): frozenset(int(use) for use in uses[value.name])
        for index, value in enumerate(evaluation.values)
        if value.kind in {"parameter", "buffer"} and value.name in changing & uses.keys()
    }
    placed = _earliest(evaluation, homes, len(train.operators))
    _delay_input_operators(evaluation, placed)
    return placed


def _homes(train: Graph, stages: Sequence[Stage], evaluation: Graph) -> dict[ValueId, frozenset[int]]:
    """The stages where the tensors of ``evaluation`` live that change during training."""
    changing = {buffer for group in buffer_groups(train) for buffer in group.buffers}
    found: dict[str, set[int]] = {}
    for stage in stages:
        for use in (*stage.parameters, *stage.buffers):
            value = train.values[use.value]
            trained = value.kind == "parameter" and value.differentiable
            if trained or use.value in changing:
                found.setdefault(value.name, set()).add(stage.index)
    return {
        ValueId(index): frozenset(found[value.name])
        for index, value in enumerate(evaluation.values)
        if value.kind in {"parameter", "buffer"} and value.name in found
    }


def _earliest(graph: Graph, homes: Mapping[ValueId, Collection[int]], stages: int) -> list[int]:
    """The earliest possible stage of each operator."""
    makers, free = producers(graph), sourceless(graph)
    placed: list[int] = []
    for index, operator in enumerate(graph.operators):
        reads = operator_inputs(operator)
        needed = [homes[v] for v in reads if v in homes]
        first = [placed[makers[v]] for v in reads if v in makers and makers[v] not in free]
        first += [min(home) for home in needed]
        measuring = not graph.measures.isdisjoint(operator.outputs)
        earliest = stages - 1 if measuring else max(first, default=0)
        complete = (s for s in range(earliest, stages) if all(s in home for home in needed))
        placed.append(0 if index in free and not measuring else next(complete, earliest))
    return placed


def _delay_input_operators(graph: Graph, placed: list[int]) -> None:
    """Move operators that depend on model inputs alone to the stage that first needs them."""
    makers, readers, free = producers(graph), consumers(graph), sourceless(graph)
    movable: set[OperatorIndex] = set(free)
    for index, operator in enumerate(graph.operators):
        fixed = any(
            graph.values[v].kind in {"parameter", "buffer"} or (v in makers and makers[v] not in movable)
            for v in operator_inputs(operator)
        )
        if not fixed and graph.measures.isdisjoint(operator.outputs):
            movable.add(OperatorIndex(index))
    for index in sorted(movable - free, reverse=True):
        made = [ValueId(v) for v in graph.operators[index].outputs if v >= 0]
        using = [placed[reader] for v in made for reader in readers.get(v, ())]
        placed[index] = min(using, default=placed[index])
