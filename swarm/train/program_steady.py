"""Operators that make the same in every run, so that a program runs them once.

Zeros that a recurrent layer begins with, masks, position ids: neither a parameter, nor a buffer, nor an input
has part in them. At small widths they are a fifth of a model's operators.
"""

from collections.abc import Iterable
from typing import Final

from swarm.graph.dag import Graph, operator_inputs
from swarm.ids import OperatorIndex, ValueId
from swarm.wire.limits import MIB

MOST_BYTES: Final = MIB
"""What they may make in all: a stage keeps it in memory that no plan counts. What is larger takes longer to
make than to call for."""


def steady_operators(graph: Graph, operators: Iterable[OperatorIndex]) -> tuple[OperatorIndex, ...]:
    """Those of a stage's ``operators``, in their order, that read constants and each other alone."""
    known = set(graph.of_kind("constant"))
    found: list[OperatorIndex] = []
    left = MOST_BYTES
    for index in operators:
        operator = graph.operators[index]
        made = [ValueId(value) for value in operator.outputs if value >= 0]
        size = sum(graph.values[value].spec.nbytes for value in made)
        if not operator.random and size <= left and known.issuperset(operator_inputs(operator)):
            found.append(index)
            known.update(made)
            left -= size
    return tuple(found)
