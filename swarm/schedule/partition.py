"""Exact partition of the topological order over a chain of peers by dynamic programming (decision D7).

Stage k of S runs on the k-th peer that is used; peers may be left out, and how many are used is part of the
answer. A stage of depth d = min(S - k, micro-batches) holds d micro-batches in flight (1F1B). Two objectives,
one after the other, both subject to every peer's memory:

1. the least possible interval: the time of the slowest stage, or of the slowest boundary where rates are
   known, since a pipeline advances at the pace of its slowest part;
2. among the partitions within ``SLACK`` of that interval, the least traffic over the boundaries (seconds
   where rates are known, else bytes), since links are what is scarce; and of those with equal traffic the one
   with the most even stages.

``swarm.schedule.program`` solves both from the end backwards. First on a thinned table: what it finds is
possible, so nothing slower need be looked at on the full one. Where even that is too much work (many peers,
and links so slow that long stages are the answer), the table is thinned just enough.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from swarm.schedule.chain import Chain, Links
from swarm.schedule.program import Choice, Choices, Program, interval_objective, traffic_objective
from swarm.schedule.table import StageTable

SLACK: Final = 0.05
"""Part of the interval given away for less traffic."""

SHORTEST: Final = 1e-30
"""Seconds: the least interval that is reckoned with, for graphs without any operation."""

THIN_PLACES: Final = 128
"""Places of the first look."""

MOST_WORK: Final = 150_000_000
"""Stages looked at for each objective, about a second's worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One stage of a partition."""

    first: int
    last: int
    """Operators ``first`` up to but without ``last``."""
    peer: int
    """Index in the chain."""
    depth: int
    memory: int
    """Bytes."""
    plain_memory: int
    """Bytes that it would need if it did not recompute."""
    seconds: float
    """Of compute, for a micro-batch."""

    @property
    def recompute(self) -> bool:
        """Whether backward runs the forward again, since the peer has not the memory to keep what it made."""
        return self.memory < self.plain_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """The stages in order, and the interval: seconds between micro-batches in the steady state."""

    segments: tuple[Segment, ...]
    interval: float
    traffic: float
    """Bytes over all boundaries for a micro-batch, both ways; seconds where rates are known."""


def partition(table: StageTable, chain: Chain, *, micro_batches: int) -> Partition | None:
    """The best partition over ``chain``, or None where its peers cannot hold the graph."""
    bound = _interval(table.thinned(THIN_PLACES), chain, micro_batches, math.inf)
    chosen = _affordable(table, chain, micro_batches, bound)
    least = _interval(chosen, chain, micro_batches, bound)
    if math.isinf(least):
        return None
    allowed = max(least, SHORTEST) * (1.0 + SLACK)
    choices = Choices(chosen, chain, micro_batches, bound=allowed)
    objective = traffic_objective(chosen, chain, bound=allowed)
    return _partition(chosen, chain, Program(choices, objective).solution())


def _interval(table: StageTable, chain: Chain, micro_batches: int, bound: float) -> float:
    """The least interval, infinite where there is none of at most ``bound`` seconds."""
    choices = Choices(table, chain, micro_batches, bound=bound)
    return Program(choices, interval_objective(table, chain, bound=bound)).least()


def _affordable(table: StageTable, chain: Chain, micro_batches: int, bound: float) -> StageTable:
    """The table with as many places as the work allows; all of them where the thinned one had no solution."""
    work = Choices(table, chain, micro_batches, bound=bound * (1.0 + SLACK)).work()
    if math.isinf(bound) or work <= MOST_WORK:
        return table
    return table.thinned(max(THIN_PLACES, int(table.places * math.sqrt(MOST_WORK / work))))


def _partition(table: StageTable, chain: Chain, chosen: list[Choice]) -> Partition:
    segments, links = [_segment(table, chain, choice) for choice in chosen], Links(table, chain)
    hops = [(before.peer, after.peer, after.start) for before, after in pairwise(chosen)]
    slowest = max([*(links.seconds(*hop) for hop in hops), *(segment.seconds for segment in segments)])
    return Partition(
        segments=tuple(segments), interval=slowest, traffic=sum(links.traffic(*hop) for hop in hops)
    )


def _segment(table: StageTable, chain: Chain, choice: Choice) -> Segment:
    number = np.asarray([table.index(choice.start, choice.end)])
    needed = plain = math.ceil(float(table.bytes(choice.depth, number)[0]))
    operations = float(table.flops[choice.end] - table.flops[choice.start])
    if plain > chain.memory[choice.peer] and table.recomputing is not None:
        needed = math.ceil(float(table.least_bytes(choice.depth, number)[0]))
        operations += float(table.recomputing.flops[choice.end] - table.recomputing.flops[choice.start])
    return Segment(
        first=int(table.positions[choice.start]),
        last=int(table.positions[choice.end]),
        peer=choice.peer,
        depth=choice.depth,
        memory=needed,
        plain_memory=plain,
        seconds=operations / chain.flops[choice.peer],
    )
