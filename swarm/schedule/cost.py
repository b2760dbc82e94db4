"""What the operators of a graph cost, as prefix sums that price any run of them at once."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from swarm.graph.dag import Graph
from swarm.schedule.calls import Call
from swarm.schedule.flops import backward_flops, forward_flops
from swarm.schedule.kept import Kept, kept


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCosts:
    """Costs of one micro-batch; the arrays have one entry for each position from 0 to the last."""

    forward: NDArray[np.float64]
    """Operations of the forward of all operators before a position."""
    backward: NDArray[np.float64]
    """The same of their backward."""
    kept: tuple[Kept, ...]
    """What each operator leaves for its backward."""

    @property
    def flops(self) -> NDArray[np.float64]:
        """Operations, forward and backward, of all operators before a position."""
        return self.forward + self.backward

    def share(self, first: int, last: int) -> float:
        """The part of all operations that operators ``first`` up to but without ``last`` have, 0 to 1."""
        total = float(self.flops[-1])
        return float(self.flops[last] - self.flops[first]) / total if total > 0 else 0.0


def graph_costs(graph: Graph) -> GraphCosts:
    """The costs of ``graph``, whatever its shapes and arguments."""
    calls = [Call(graph, operator) for operator in graph.operators]
    return GraphCosts(
        forward=_prefix_sums([forward_flops(call) for call in calls]),
        backward=_prefix_sums([backward_flops(call) for call in calls]),
        kept=tuple(kept(call) for call in calls),
    )


def _prefix_sums(counts: list[float]) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(np.asarray(counts, dtype=np.float64))])
