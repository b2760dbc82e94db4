"""Every possible stage of a graph with what it costs: the input of the partition.

Places to cut are numbered: place 0 is the start, the last place is the end, and a stage runs from one place
to a later one. Stages are listed by their start, then by their end, in flat arrays.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from swarm.graph.cut import crossings
from swarm.graph.dag import Graph
from swarm.schedule.calls import MOST
from swarm.schedule.cost import graph_costs
from swarm.schedule.memory import MemoryModel
from swarm.wire.records.manifest import Optimizer

MAX_PLACES: Final = 1024
"""Places that are considered. Of a graph with more, each 1024th of the compute keeps its cheapest place."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]

EVERY: Final = slice(None)
"""All stages of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputing:
    """What the stages of a table need where backward runs the forward again."""

    flops: Floats
    """Operations of a micro-batch's forward before each place: what is computed once more."""
    fixed: Floats
    held: Floats
    """As those of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTable:
    """The places of one graph, and all stages between them."""

    positions: Integers
    """The operator with which each place begins; the last is the number of operators."""
    flops: Floats
    """Operations of a micro-batch, forward and backward, before each place."""
    forward_bytes: Floats
    """Bytes that cross each place forward, for a micro-batch."""
    backward_bytes: Floats
    """Bytes of gradients that cross each place backward."""
    starts: Integers
    """The place where each stage starts."""
    ends: Integers
    """The place where it ends."""
    fixed: Floats
    """Bytes that it needs whatever its depth."""
    held: Floats
    """Bytes that it needs for each micro-batch in flight."""
    needs: Mapping[str, Integers]
    """For each thing that a peer may lack, how many operators before each place need it."""
    recomputing: Recomputing | None = None
    """Where stages may recompute; one does where it does not fit otherwise."""

    @property
    def places(self) -> int:
        """Number of places."""
        return len(self.positions)

    @property
    def stage_flops(self) -> Floats:
        """Operations of each stage."""
        return self.flops[self.ends] - self.flops[self.starts]

    def bytes(self, depth: int, numbers: Integers | slice = EVERY) -> Floats:
        """What stages need that do not recompute."""
        return self.fixed[numbers] + depth * self.held[numbers]

    def least_bytes(self, depth: int, numbers: Integers | slice = EVERY) -> Floats:
        """What stages need at the least."""
        plain, other = self.bytes(depth, numbers), self.recomputing
        if other is None:
            return plain
        return np.minimum(plain, other.fixed[numbers] + depth * other.held[numbers])

    def able(self, lacks: Collection[str], numbers: Integers) -> Truths:
        """Which of these stages a peer can run that lacks so much."""
        able = np.ones(len(numbers), dtype=np.bool_)
        for name in self.needs.keys() & lacks:
            before = self.needs[name]
            able &= before[self.starts[numbers]] == before[self.ends[numbers]]
        return able

    def index(self, start: int, end: int) -> int:
        """The number of the stage from place ``start`` to place ``end``."""
        return int(self._index(np.asarray(start), np.asarray(end)))

    def thinned(self, places: int) -> "StageTable":
        """The same with at most ``places`` places: of each part of the compute the one with least traffic."""
        if self.places <= places:
            return self
        kept = spread(self.flops, self.forward_bytes + self.backward_bytes, places)
        starts, ends = np.triu_indices(len(kept), k=1)
        numbers, other = self._index(kept[starts], kept[ends]), self.recomputing
        return StageTable(
            positions=self.positions[kept],
            flops=self.flops[kept],
            forward_bytes=self.forward_bytes[kept],
            backward_bytes=self.backward_bytes[kept],
            starts=starts,
            ends=ends,
            fixed=self.fixed[numbers],
            held=self.held[numbers],
            needs={name: before[kept] for name, before in self.needs.items()},
            recomputing=other
            and Recomputing(flops=other.flops[kept], fixed=other.fixed[numbers], held=other.held[numbers]),
        )

    def _index(self, start: Integers, end: Integers) -> Integers:
        before = start * (self.places - 1) - start * (start - 1) // 2
        return before + end - start - 1


def stage_table(
    graph: Graph, optimizer: Optimizer, *, recompute: bool = False, needed: Iterable[Collection[str]] = ()
) -> StageTable:
    """The table of ``graph`` trained with ``optimizer``; the same for the same graph everywhere.

    ``recompute``: whether stages may. ``needed``: what peers have to have for each operator.
    """
    costs, crossing = graph_costs(graph), crossings(graph)
    forward = np.minimum(np.asarray(crossing.forward_bytes, dtype=np.float64), MOST)
    backward = np.minimum(np.asarray(crossing.backward_bytes, dtype=np.float64), MOST)
    legal = np.flatnonzero(np.asarray(crossing.legal))
    positions = legal[spread(costs.flops[legal], (forward + backward)[legal], MAX_PLACES)]
    model = MemoryModel(graph, costs, optimizer)
    fixed, held = _rows(model, positions, recompute=False)
    again = _rows(model, positions, recompute=True) if recompute else None
    starts, ends = np.triu_indices(len(positions), k=1)
    return StageTable(
        positions=positions,
        flops=costs.flops[positions],
        forward_bytes=forward[positions],
        backward_bytes=backward[positions],
        starts=starts,
        ends=ends,
        fixed=fixed,
        held=held,
        needs=_needs(needed, positions),
        recomputing=again and Recomputing(flops=costs.forward[positions], fixed=again[0], held=again[1]),
    )


def _needs(needed: Iterable[Collection[str]], positions: Integers) -> dict[str, Integers]:
    users: dict[str, list[int]] = {}
    for index, names in enumerate(needed):
        for name in names:
            users.setdefault(name, []).append(index)
    return {name: np.searchsorted(at, positions) for name, at in users.items()}


def _rows(model: MemoryModel, positions: Integers, *, recompute: bool) -> tuple[Floats, Floats]:
    """What all stages between ``positions`` need, whatever their depth and for each micro-batch in flight."""
    fixed, held = [], []
    for place, first in enumerate(positions[:-1]):
        rows, lasts = model.rows(int(first), recompute=recompute), positions[place + 1 :]
        fixed.append(rows.fixed[lasts])
        held.append(rows.held[lasts])
    return np.concatenate(fixed), np.concatenate(held)


def spread(flops: Floats, traffic: Floats, places: int) -> Integers:
    """Which places to keep, ``places`` (3 or more) at most: the ends, and the cheapest of each part between.

    Parts have equal compute, with a little for each place, so that places that cost nothing are spread too.
    """
    count = len(flops)
    if count <= places:
        return np.arange(count)
    inner = np.arange(1, count - 1)
    progress = flops[inner] / max(float(flops[-1]), 1.0) + inner / count
    part = np.floor(progress / 2.0 * (places - 2)).astype(np.int64)
    order = np.lexsort((inner, traffic[inner], part))
    _, cheapest = np.unique(part[order], return_index=True)
    return np.concatenate([[0], np.sort(inner[order][cheapest]), [count - 1]])
