"""Laying the evaluation graph over the stages of a cut training graph.

Both graphs are captured over one set of tensors and know each by the same name. An operator of the
evaluation graph runs where the tensors it reads live, and never before a stage that it reads from.
"""

from collections.abc import Collection, Mapping, Sequence

from swarm.errors import CaptureError
from swarm.graph.buffers import buffer_groups
from swarm.graph.dag import Graph, Operator, consumers, operator_inputs, producers
from swarm.graph.routing import Placement, route, sourceless
from swarm.graph.stage import Stage
from swarm.ids import OperatorIndex, ValueId


def evaluation_stages(train: Graph, stages: Sequence[Stage], evaluation: Graph) -> tuple[Stage, ...]:
    """The stages of ``evaluation`` beside ``stages``, the cut of ``train``; as many, some maybe empty.

    An operator is in the latest stage of its inputs, or in the first one after it that holds its trained
    parameters and changed buffers (a shared parameter lives in every stage that uses it). Operators on model
    inputs alone run where they are first needed, so that only those stages fetch inputs. The loss is in the
    last stage. Evaluation changes no buffer, so the stages have no updates, and they own nothing.

    Raises CaptureError where no such order exists: evaluation uses a parameter later than training does.
    """
    homes = _homes(train, stages)
    placed = _forward_pass(evaluation, homes, len(stages))
    _delay_input_operators(evaluation, placed)
    return route(evaluation, Placement(stages=len(stages), operators=placed, updates={}, owners={}))


def _homes(train: Graph, stages: Sequence[Stage]) -> dict[str, frozenset[int]]:
    """By name, the stages where each tensor lives that changes during training."""
    changing = {buffer for group in buffer_groups(train) for buffer in group.buffers}
    found: dict[str, set[int]] = {}
    for stage in stages:
        for use in (*stage.parameters, *stage.buffers):
            value = train.values[use.value]
            trained = value.kind == "parameter" and value.differentiable
            if trained or use.value in changing:
                found.setdefault(value.name, set()).add(stage.index)
    return {name: frozenset(indices) for name, indices in found.items()}


def _forward_pass(graph: Graph, homes: Mapping[str, Collection[int]], stages: int) -> list[int]:
    """The earliest possible stage of each operator."""
    makers, free = producers(graph), sourceless(graph)
    placed: list[int] = []
    for index, operator in enumerate(graph.operators):
        reads = operator_inputs(operator)
        earliest = max((placed[makers[v]] for v in reads if v in makers and makers[v] not in free), default=0)
        if graph.loss in operator.outputs:
            earliest = stages - 1
        held = [homes[graph.values[v].name] for v in reads if graph.values[v].name in homes]
        allowed = [s for s in range(earliest, stages) if all(s in home for home in held)]
        if not allowed:
            raise CaptureError(_impossible(graph, operator, homes))
        placed.append(0 if index in free else allowed[0])
    return placed


def _impossible(graph: Graph, operator: Operator, homes: Mapping[str, Collection[int]]) -> str:
    names = [graph.values[v].name for v in operator_inputs(operator) if graph.values[v].name in homes]
    where = f"{operator.path or 'the model'}{f' at {operator.source}' if operator.source else ''}"
    return (
        f"{where} uses {' and '.join(dict.fromkeys(names))} later in evaluation than in training, so no "
        "stage can run it; use them in the same order in both modes"
    )


def _delay_input_operators(graph: Graph, placed: list[int]) -> None:
    """Move operators that depend on model inputs alone to the stage that first needs them."""
    makers, readers, free = producers(graph), consumers(graph), sourceless(graph)
    movable: set[OperatorIndex] = set(free)
    for index, operator in enumerate(graph.operators):
        fixed = any(
            graph.values[v].kind in {"parameter", "buffer"} or (v in makers and makers[v] not in movable)
            for v in operator_inputs(operator)
        )
        if not fixed and graph.loss not in operator.outputs:
            movable.add(OperatorIndex(index))
    for index in sorted(movable - free, reverse=True):
        made = [ValueId(v) for v in graph.operators[index].outputs if v >= 0]
        using = [placed[reader] for v in made for reader in readers.get(v, ())]
        placed[index] = min(using, default=placed[index])
