"""Orders of peers that are worth a partition: early stages hold more micro-batches, so memory comes first."""

from collections.abc import Iterator, Sequence
from itertools import groupby, product
from math import isqrt, prod
from typing import Final

import numpy as np

from swarm.schedule.table import StageTable, Truths
from swarm.schedule.workload import PeerOffer

MOST_WORK: Final = 300_000_000
"""Stages that the search for a fitting order may look at, a second's worth; the table is thinned to it."""

MOST_STATES: Final = 20_000
"""Ways to choose peers, those of equal memory that lack the same alike, that it may go through."""

Used = tuple[int, ...]
"""How many peers of each kind, by rising memory, are used."""


def likely_orders(offers: Sequence[PeerOffer]) -> Iterator[tuple[PeerOffer, ...]]:
    """By falling memory, rising memory, falling speed and rising speed, each order of kinds once."""
    by_memory = sorted(offers, key=lambda offer: (offer.memory, offer.flops, offer.peer))
    by_speed = sorted(offers, key=lambda offer: (offer.flops, offer.memory, offer.peer))
    seen: set[tuple[tuple[int, float, frozenset[str]], ...]] = set()
    for order in (by_memory[::-1], by_memory, by_speed[::-1], by_speed):
        kinds = tuple((offer.memory, offer.flops, offer.lacks) for offer in order)
        if kinds not in seen:
            seen.add(kinds)
            yield tuple(order)


def fitting_order(
    table: StageTable, offers: Sequence[PeerOffer], *, micro_batches: int
) -> tuple[PeerOffer, ...] | None:
    """An order in which these peers can hold the graph, or None where none was found.

    Looks at every order at once, by the set of peers that hold the end of the graph. Exact, unless the
    table is so large, and the offers so many and different, that the search has to be cut down.
    """
    search = _Search(table, sorted(offers, key=lambda offer: (_kind(offer), offer.peer)), micro_batches)
    return search.order()


class _Search:
    def __init__(self, table: StageTable, offers: Sequence[PeerOffer], micro_batches: int) -> None:
        self._alike = [list(alike) for _, alike in groupby(offers, key=_kind)]
        self._counts = [len(alike) for alike in self._alike]
        self._states = prod(count + 1 for count in self._counts)
        steps = max(self._states * len(self._alike), 1)
        self._table = table.thinned(max(isqrt(2 * MOST_WORK // steps), 3))
        self._micro_batches = micro_batches
        self._begins = np.flatnonzero(np.diff(self._table.starts, prepend=-1))
        everything = np.arange(len(self._table.starts))
        self._able = [self._table.able(alike[0].lacks, everything) for alike in self._alike]
        self._reach: dict[Used, Truths] = {}
        """By peers used: from which places on they can hold everything, each with one stage."""

    def order(self) -> tuple[PeerOffer, ...] | None:
        if self._states > MOST_STATES:
            return None
        nothing = np.zeros(self._table.places, dtype=np.bool_)
        nothing[-1] = True
        none = (0,) * len(self._counts)
        self._reach[none] = nothing
        for used in sorted(product(*(range(count + 1) for count in self._counts)), key=sum):
            if used == none:
                continue
            row = np.zeros(self._table.places, dtype=np.bool_)
            for kind in self._kinds(used):
                row[:-1] |= np.maximum.reduceat(self._possible(used, kind), self._begins)
            self._reach[used] = row
            if row[0]:
                return self._trace(used)
        return None

    def _kinds(self, used: Used) -> list[int]:
        return [kind for kind, count in enumerate(used) if count]

    def _possible(self, used: Used, kind: int) -> Truths:
        """Which stages a peer of this kind can take as the first of ``used``, the others holding the rest."""
        depth = min(sum(used), self._micro_batches)
        fits = self._table.least_bytes(depth) <= self._alike[kind][0].memory
        possible: Truths = fits & self._able[kind] & self._reach[_without(used, kind)][self._table.ends]
        return possible

    def _trace(self, used: Used) -> tuple[PeerOffer, ...]:
        left = [list(alike) for alike in self._alike]
        start, order = 0, []
        while sum(used):
            for kind in self._kinds(used):
                ends = self._table.ends[self._possible(used, kind) & (self._table.starts == start)]
                if len(ends):
                    order.append(left[kind].pop(0))
                    start, used = int(ends[0]), _without(used, kind)
                    break
        return (*order, *(offer for alike in left for offer in alike))


def _kind(offer: PeerOffer) -> tuple[int, list[str]]:
    return offer.memory, sorted(offer.lacks)


def _without(used: Used, kind: int) -> Used:
    return (*used[:kind], used[kind] - 1, *used[kind + 1 :])
