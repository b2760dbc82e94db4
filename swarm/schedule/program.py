"""The dynamic program behind ``swarm.schedule.partition``, for any objective that adds up or takes a maximum.

``best[t][j][p]`` is the least cost of running everything from place p on in exactly t stages, the first of
them on peer j of the chain and the others on later ones::

    best[t][j][p]  = min over ends e of  join(stage(j, p, e), after[t][j][e])
    after[t][j][e] = min over peers k > j of  join(link(j, k, e), best[t - 1][k][e])

with ``after[1]`` zero at the last place and infinite elsewhere.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from swarm.schedule.chain import Chain, Links
from swarm.schedule.table import Floats, Integers, StageTable

_BALANCE: Final = 0.01
"""What a stage that takes the whole interval costs beside traffic, in parts of the least traffic anywhere."""


_ROUNDING: Final = 1e-12
"""Parts by which a stage may exceed the bound that was computed from its own time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What is minimised."""

    stage: Callable[[Floats], Floats]
    """The cost of stages, by their seconds."""
    link: Callable[[int, slice], Floats]
    """The cost of boundaries from a peer to each later one (rows), by place."""
    join: np.ufunc
    """How costs of parts make the cost of a whole."""


def interval_objective(table: StageTable, chain: Chain, *, bound: float) -> Objective:
    """The time of the slowest stage or boundary, of at most ``bound`` seconds."""
    links = Links(table, chain)

    def link(peer: int, later: slice) -> Floats:
        seconds = links.all_seconds(peer, later)
        return np.where(seconds <= bound, seconds, math.inf)

    return Objective(stage=lambda seconds: seconds, link=link, join=np.maximum)


def traffic_objective(table: StageTable, chain: Chain, *, bound: float) -> Objective:
    """Traffic, then evenness: a small cost for the squares of the stages' seconds.

    A boundary costs as much as the least even stage, even where nothing crosses it (operators on inputs, or
    without any): a stage that makes nothing faster is one more peer that can leave.
    """
    links = Links(table, chain)
    costs = links.all_traffic(0, slice(0, chain.peers))
    balance = _BALANCE * float(costs[costs > 0].min(initial=1.0))

    def link(peer: int, later: slice) -> Floats:
        fits = links.all_seconds(peer, later) <= bound
        return np.where(fits, links.all_traffic(peer, later) + balance, math.inf)

    def stage(seconds: Floats) -> Floats:
        return balance * np.square(seconds / bound)

    return Objective(stage=stage, link=link, join=np.add)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Stages that a peer can take, ordered by start and then by end."""

    numbers: Integers
    """In the table."""
    seconds: Floats
    ends: Integers
    starts: Integers
    """The places where any of them starts."""
    begins: Integers
    """Where in the other arrays the stages of each of ``starts`` begin."""

    @classmethod
    def of(cls, table: StageTable, numbers: Integers, seconds: Floats) -> "Stages":
        """The stages with these numbers, which take so long."""
        starts, ends = table.starts[numbers], table.ends[numbers]
        begins = np.flatnonzero(np.diff(starts, prepend=-1))
        return cls(numbers=numbers, seconds=seconds, ends=ends, starts=starts[begins], begins=begins)

    def row(self, start: int) -> slice:
        """Where the stages from one place are; there are some."""
        row = int(np.searchsorted(self.starts, start))
        following = self.begins[row + 1] if row + 1 < len(self.begins) else len(self.numbers)
        return slice(int(self.begins[row]), int(following))


class Choices:
    """Which stages each peer can take at each depth, in at most ``bound`` seconds each."""

    def __init__(self, table: StageTable, chain: Chain, micro_batches: int, *, bound: float) -> None:
        self.table = table
        self.chain = chain
        self._micro_batches = micro_batches
        self._bound = bound
        self._flops = table.stage_flops
        self._all = np.arange(len(self._flops))
        self._quick: dict[float, Integers] = {}
        self._latest: dict[tuple[int, float, frozenset[str]], tuple[int, Stages]] = {}
        """For each kind of peer the depth that was asked for last; the next one is rarely less."""

    def depth(self, left: int) -> int:
        """Micro-batches in flight at a stage with ``left`` stages from it to the end, itself included."""
        return min(left, self._micro_batches)

    def of(self, peer: int, left: int) -> Stages:
        """What ``peer`` can take with ``left`` stages from there to the end."""
        kind, depth = self.chain.kind(peer), self.depth(left)
        memory, flops, lacks = kind
        known = self._latest.get(kind)
        if known is not None and known[0] == depth:
            return known[1]
        stages = known[1] if known is not None and known[0] < depth else None
        numbers = self._possible(flops, lacks) if stages is None else stages.numbers
        fits = self.table.least_bytes(depth, numbers) <= memory
        if stages is None or not fits.all() or self.table.recomputing is not None:
            stages = self._stages(numbers[fits], memory, flops, depth)
        self._latest[kind] = depth, stages
        return stages

    def _stages(self, numbers: Integers, memory: int, flops: float, depth: int) -> Stages:
        """These stages, which fit, where a peer is quick enough with what it has to recompute."""
        table = self.table
        again = table.bytes(depth, numbers) > memory
        operations = self._flops[numbers]
        if table.recomputing is not None:
            forward = table.recomputing.flops
            operations += again * (forward[table.ends[numbers]] - forward[table.starts[numbers]])
            quick = operations <= self._bound * flops * (1.0 + _ROUNDING)
            numbers, operations = numbers[quick], operations[quick]
        return Stages.of(table, numbers, operations / flops)

    def work(self) -> int:
        """Stages that a program looks at, counted for each peer and number of stages after it."""
        peers = range(self.chain.peers)
        return sum(len(self.of(peer, 1).numbers) * (self.chain.peers - peer) for peer in peers)

    def _possible(self, flops: float, lacks: frozenset[str]) -> Integers:
        """The stages that such a peer can run, and is quick enough for."""
        quick = self._quick_enough(flops)
        return quick[self.table.able(lacks, quick)] if lacks else quick

    def _quick_enough(self, flops: float) -> Integers:
        most = self._bound * flops * (1.0 + _ROUNDING)
        if most >= self._flops.max():
            return self._all
        if flops not in self._quick:
            self._quick[flops] = np.flatnonzero(self._flops <= most)
        return self._quick[flops]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One stage of a solution, by the places of the table and the peers of the chain."""

    start: int
    end: int
    peer: int
    depth: int


class Program:
    """The solved program."""

    def __init__(self, choices: Choices, objective: Objective) -> None:
        self._choices = choices
        self._objective = objective
        self._places = choices.table.places
        self._peers = choices.chain.peers
        self._best: list[Floats] = []
        for left in range(1, min(self._peers, self._places - 1) + 1):
            self._best.append(self._layer(left))
            if np.isinf(self._best[-1]).all():
                break

    def least(self) -> float:
        """The least cost of all, infinite where there is no solution."""
        return min((float(layer[:, 0].min()) for layer in self._best), default=math.inf)

    def solution(self) -> list[Choice]:
        """The stages of the least cost, in order; the fewest where several numbers of stages have it."""
        left = 1 + int(np.argmin([layer[:, 0].min() for layer in self._best]))
        peer, start = int(np.argmin(self._best[left - 1][:, 0])), 0
        chosen = []
        while left > 0:
            end, following = self._step(left, peer, start)
            depth = self._choices.depth(left)
            chosen.append(Choice(start=start, end=end, peer=peer, depth=depth))
            left, peer, start = left - 1, following, end
        return chosen

    def _layer(self, left: int) -> Floats:
        """``best[left]``, peers by places."""
        layer = np.full((self._peers, self._places), math.inf)
        known: dict[tuple[tuple[int, float, frozenset[str]], bytes], Floats] = {}
        for peer in range(self._peers - left + 1):
            after = self._after(left, peer)
            kind = (self._choices.chain.kind(peer), after.tobytes())
            if kind not in known:
                known[kind] = self._row(self._choices.of(peer, left), after)
            layer[peer] = known[kind]
        return layer

    def _row(self, stages: Stages, after: Floats) -> Floats:
        row = np.full(self._places, math.inf)
        if len(stages.numbers):
            costs = self._objective.join(self._objective.stage(stages.seconds), after[stages.ends])
            row[stages.starts] = np.minimum.reduceat(costs, stages.begins)
        return row

    def _after(self, left: int, peer: int) -> Floats:
        """``after[left][peer]``, by place."""
        if left == 1:
            after = np.full(self._places, math.inf)
            after[-1] = 0.0
            return after
        following: Floats = self._following(left, peer).min(axis=0)
        return following

    def _following(self, left: int, peer: int) -> Floats:
        """The costs after a stage by each later peer (rows) and place."""
        later = slice(peer + 1, self._peers)
        costs: Floats = self._objective.join(self._objective.link(peer, later), self._best[left - 2][later])
        return costs

    def _step(self, left: int, peer: int, start: int) -> tuple[int, int]:
        """Where the best stage from ``start`` ends, and the peer of the one after it (-1 for none)."""
        stages = self._choices.of(peer, left)
        row = stages.row(start)
        after = self._after(left, peer)[stages.ends[row]]
        costs = self._objective.join(self._objective.stage(stages.seconds[row]), after)
        end = int(stages.ends[row][int(np.argmin(costs))])
        if left == 1:
            return end, -1
        return end, peer + 1 + int(np.argmin(self._following(left, peer)[:, end]))
