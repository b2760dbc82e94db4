"""Buffers that the model changes, and the operators that must stay in one stage because of them.

Within a step each micro-batch reads what the one before it left (running statistics, counters, memories), so
whoever reads such a buffer must be where its new value is made. A buffer that never changes is like a
constant: every stage that reads it holds it.
"""

from dataclasses import dataclass

from swarm.graph.dag import Graph, consumers, producers
from swarm.graph.routing import sourceless
from swarm.ids import OperatorIndex, ValueId


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferGroup:
    """Changed buffers that must be in one stage, and the operators that must be there with them.

    Both ascend. Without operators, any one stage will do.
    """

    buffers: tuple[ValueId, ...]
    operators: tuple[OperatorIndex, ...]


def buffer_groups(graph: Graph) -> tuple[BufferGroup, ...]:
    """The groups of ``graph``'s changed buffers: one buffer each, unless one becomes the value of another."""
    readers, makers, free = consumers(graph), producers(graph), sourceless(graph)
    changed = {ValueId(update.buffer) for update in graph.updates}
    group = {buffer: {buffer} for buffer in changed}
    operators = {buffer: set(readers.get(buffer, ())) for buffer in changed}
    for update in graph.updates:
        buffer, value = ValueId(update.buffer), ValueId(update.value)
        kind = graph.values[value].kind
        if kind == "output" and makers[value] not in free:
            operators[buffer].add(makers[value])
        elif kind == "parameter":
            operators[buffer].update(readers.get(value, ())[:1])
        elif value in changed:
            merged = group[buffer] | group[value]
            for member in merged:
                group[member] = merged
    distinct = {tuple(sorted(members)) for members in group.values()}
    return tuple(
        BufferGroup(buffers=members, operators=tuple(sorted(set().union(*(operators[b] for b in members)))))
        for members in sorted(distinct)
    )
