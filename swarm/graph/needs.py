"""What a peer has to have for each operator of a graph (decision D4): the operator itself, and data types."""

from collections.abc import Sequence

from swarm.graph.dag import Graph, operator_inputs, producers
from swarm.graph.routing import sourceless


def needs(graph: Graph) -> Sequence[frozenset[str]]:
    """For each operator the names of operators and data types that run with it.

    Those of the source-less operators that it reads are among them: they are computed again beside it.
    """
    makers, free = producers(graph), sourceless(graph)
    found: list[frozenset[str]] = []
    for operator in graph.operators:
        reads = operator_inputs(operator)
        touched = (*reads, *(value for value in operator.outputs if value >= 0))
        own = {operator.target, *(graph.values[value].spec.dtype for value in touched)}
        found.append(
            frozenset(own).union(*(found[makers[v]] for v in reads if v in makers and makers[v] in free))
        )
    return found
