"""The bytes that a stage needs, one function for planning and for what people are told.

Counted, for operators ``first`` up to but without ``last`` and ``depth`` micro-batches in flight:

- each parameter, buffer and constant that they use, once; a buffer that the model changes twice (decision
  D10: a step's copy is adopted at its end);
- for each trained parameter a gradient accumulator for each operator that uses it (decision D5), at its owner
  for every operator wherever it is, since the owner sums them; at the owner also the optimizer's state;
- ``depth`` times what backward needs of one micro-batch: what autograd keeps, and every boundary tensor;
- of a stage that recomputes, in place of that, ``depth`` times the model inputs, the boundary tensors that
  came in and the changed buffers that a micro-batch read, and once what the backward at work needs, whose
  gradients from later stages wait while its forward runs again;
- the bytes of one micro-batch's boundary tensors while they come in or go out;
- the worst moment: values, gradients and scratch that live shortly (``swarm.schedule.peaks``), in a backward,
  where what later operators kept is gone, in a forward, where the last gradients are on their way back, or at
  the step boundary.

Not counted: the torch library and its caches, the datasets' blocks, and what the device itself reserves.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from swarm.graph.cut import sent_bytes, trained_uses
from swarm.graph.dag import Graph, consumers, operator_inputs, producers
from swarm.graph.routing import sourceless
from swarm.ids import OperatorIndex, ValueId
from swarm.schedule.calls import MOST, Call, aliases, saturated
from swarm.schedule.cost import GraphCosts
from swarm.schedule.peaks import Lives, Moments
from swarm.schedule.spans import Sizes, SpanBuilder, Spans
from swarm.wire.records.manifest import Optimizer

_WAITING: Final = 2.0
"""A gradient that came for a backward, as its payload and as a tensor."""


def optimizer_copies(optimizer: Optimizer) -> int:
    """Tensors of a parameter's size that are kept beside it: the optimizer's state, and an average."""
    average = int(optimizer.ema > 0)
    if optimizer.kind in {"adam", "adamw"}:
        return 2 + average
    return int(optimizer.momentum > 0) + average


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRows:
    """Bytes of all stages that start at one position, by the position where they end."""

    standing: Sizes
    """At all times."""
    moment: Sizes
    """At the worst moment, beyond what stands and what is held."""
    held: Sizes
    """For each micro-batch in flight."""

    @property
    def fixed(self) -> Sizes:
        """Whatever the depth."""
        return self.standing + self.moment


class MemoryModel:
    """The memory of every possible stage of one graph under one optimizer."""

    def __init__(self, graph: Graph, costs: GraphCosts, optimizer: Optimizer) -> None:
        facts = _Facts.of(graph)
        self._fixed = _fixed(graph, facts, optimizer_copies(optimizer))
        savers = _savers(facts, costs)
        ends = _last_uses(facts)
        self._saved = _saved(graph, facts, costs, savers)
        self._received = _received(graph, facts, savers)
        self._starts = _starts(graph, facts)
        self._outgoing = _outgoing(graph, facts)
        self._returned = _returned(graph, facts)
        self._sent = _sent(graph, facts, savers, ends)
        lives = Lives(roots=facts.roots, made=facts.made, ends=ends, kept=frozenset(savers))
        self._moments = Moments(graph, lives, optimizer)

    def rows(self, first: int, *, recompute: bool = False) -> MemoryRows:
        """All stages that start with operator ``first``; entries up to ``first`` mean nothing."""
        saved, sent = self._saved.row(first), self._sent.row(first)
        if not recompute:
            saved += self._received.row(first)
        held, add = saved + sent, self._moments
        worst = np.zeros_like(held)
        later = slice(first + 1, None)
        forward = np.maximum.accumulate(held[later] + add.forward(first))
        forward += self._returned.row(first)[later]
        backward = np.maximum.accumulate(saved[later] + add.backward(first) - add.fresh[first:-1])
        boundary = np.maximum.accumulate(add.boundary[first:])
        worst[later] = np.maximum.reduce([forward, backward + add.fresh[later] + sent[later], boundary])
        standing = self._fixed.row(first)
        if recompute:
            worst[later] = np.maximum(worst[later], forward + _WAITING * self._outgoing.row(first)[later])
            return MemoryRows(standing=standing, moment=worst, held=self._starts.row(first))
        return MemoryRows(standing=standing, moment=np.maximum(worst - held, 0.0), held=held)

    def stage_bytes(self, first: int, last: int, depth: int, *, recompute: bool = False) -> int:
        """Bytes that the stage of operators ``first`` up to but without ``last`` needs."""
        rows = self.rows(first, recompute=recompute)
        return math.ceil(float(rows.fixed[last] + depth * rows.held[last]))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """Who makes and reads what. Model inputs and source-less values are made everywhere: at -1.

    What a source-less operator reads counts as read where its result is used, for there it runs.
    """

    made: dict[ValueId, int]
    readers: dict[ValueId, tuple[OperatorIndex, ...]]
    roots: dict[ValueId, ValueId]
    """The value whose memory each value lies in."""

    @classmethod
    def of(cls, graph: Graph) -> "_Facts":
        free = sourceless(graph)
        made = {value: -1 if maker in free else int(maker) for value, maker in producers(graph).items()}
        made.update(dict.fromkeys(graph.inputs(), -1))
        roots: dict[ValueId, ValueId] = {}
        for operator in graph.operators:
            call = Call(graph, operator)
            shared = aliases(call)
            for value in call.outputs:
                source = shared.get(value, value)
                roots[value] = roots.get(source, source)
        return cls(made=made, readers=_readers(graph, free), roots=roots)


def _readers(graph: Graph, free: frozenset[OperatorIndex]) -> dict[ValueId, tuple[OperatorIndex, ...]]:
    """The readers of each value among the operators that are not source-less, directly or through those."""
    found: dict[ValueId, set[OperatorIndex]] = {
        value: {reader for reader in readers if reader not in free}
        for value, readers in consumers(graph).items()
    }
    for index in sorted(free, reverse=True):
        operator = graph.operators[index]
        through = {reader for made in operator.outputs for reader in found.get(ValueId(made), ())}
        for value in operator_inputs(operator):
            found[value] |= through
    return {value: tuple(sorted(readers)) for value, readers in found.items()}


def _fixed(graph: Graph, facts: _Facts, copies: int) -> Spans:
    """Tensors of the model, their gradients and optimizer state, and boundary tensors on their way."""
    spans = SpanBuilder(len(graph.operators))
    changed = {update.buffer for update in graph.updates}
    for value in (*graph.of_kind("parameter"), *graph.of_kind("buffer"), *graph.of_kind("constant")):
        size = _bytes(graph, value) * (2 if value in changed else 1)
        for at, before in _pairs(-1, facts.readers.get(value, ())):
            spans.across(at, before, size)
    for value, uses in trained_uses(graph).items():
        size = _bytes(graph, value)
        for position, use in enumerate(uses):
            if position == 0:
                spans.always(use, size * (len(uses) + copies))
            else:
                spans.across(use, uses[0], size)
    for value, maker in facts.made.items():
        if maker >= 0:
            size = saturated(sent_bytes(graph.values[value].spec))
            _count_hops(spans, _pairs(maker, facts.readers.get(value, ())), size)
    return spans.finish()


def _count_hops(spans: SpanBuilder, pairs: list[tuple[int, int]], size: float) -> None:
    """Each pair of a touch and the one before it is a hop where the two are in different stages.

    It counts where it comes in and where it goes out: in stages with one of the two operators only.
    """
    for at, before in pairs:
        spans.across(at, before, size)
        spans.always(before, size)
        spans.inside(at, before, -size)


def _returned(graph: Graph, facts: _Facts) -> Spans:
    """Gradients of what came from other stages, on their way back while the next micro-batch comes in."""
    spans = SpanBuilder(len(graph.operators))
    for value, maker in facts.made.items():
        if maker >= 0 and graph.values[value].differentiable:
            for at, before in _pairs(maker, facts.readers.get(value, ())):
                spans.across(at, before, _bytes(graph, value))
    return spans.finish()


def _outgoing(graph: Graph, facts: _Facts) -> Spans:
    """Gradients of what went to other stages: they wait while a forward runs again."""
    spans = SpanBuilder(len(graph.operators))
    for value, maker in facts.made.items():
        if maker >= 0 and graph.values[value].differentiable:
            for at, before in _pairs(maker, facts.readers.get(value, ())):
                spans.always(before, _bytes(graph, value))
                spans.inside(at, before, -_bytes(graph, value))
    return spans.finish()


def _savers(facts: _Facts, costs: GraphCosts) -> dict[ValueId, list[int]]:
    """For each memory the operators that keep it for their backward, in order."""
    savers: dict[ValueId, list[int]] = {}
    for index, kept in enumerate(costs.kept):
        for value in kept.values:
            savers.setdefault(facts.roots.get(value, value), []).append(index)
    return savers


def _saved(graph: Graph, facts: _Facts, costs: GraphCosts, savers: Mapping[ValueId, list[int]]) -> Spans:
    """What autograd keeps of one micro-batch, but for what came from elsewhere."""
    spans = SpanBuilder(len(graph.operators))
    for index, kept in enumerate(costs.kept):
        spans.always(index, kept.hidden)
    for value, maker in facts.made.items():
        if maker >= 0 and value in savers and value == facts.roots.get(value, value):
            spans.inside(min(savers[value]), maker, _bytes(graph, value))
    return spans.finish()


def _received(graph: Graph, facts: _Facts, savers: Mapping[ValueId, list[int]]) -> Spans:
    """What came for one micro-batch, from other stages or as the model's inputs, and is kept."""
    spans = SpanBuilder(len(graph.operators))
    for value, maker in facts.made.items():
        if graph.values[value].differentiable or facts.roots.get(value, value) in savers:
            for at, before in _pairs(maker, facts.readers.get(value, ())):
                spans.across(at, before, _bytes(graph, value))
    return spans.finish()


def _starts(graph: Graph, facts: _Facts) -> Spans:
    """What a forward starts from: all that came in, and changed buffers as this micro-batch found them."""
    spans = SpanBuilder(len(graph.operators))
    changed = {ValueId(update.buffer) for update in graph.updates}
    came = [v for v, maker in facts.made.items() if maker >= 0 or graph.values[v].kind == "input"]
    for value in (*came, *changed):
        for at, before in _pairs(facts.made.get(value, -1), facts.readers.get(value, ())):
            spans.across(at, before, _bytes(graph, value))
    return spans.finish()


def _sent(
    graph: Graph, facts: _Facts, savers: Mapping[ValueId, list[int]], ends: Mapping[ValueId, int]
) -> Spans:
    """What was made here and is sent on, itself or as a view, unless it is kept anyway."""
    spans = SpanBuilder(len(graph.operators))
    for value, maker in facts.made.items():
        if maker >= 0 and facts.roots.get(value, value) == value and graph.values[value].differentiable:
            size = _bytes(graph, value)
            spans.always(maker, size)
            spans.inside(max(maker, min([ends[value], *savers.get(value, ())])), maker, -size)
    return spans.finish()


def _last_uses(facts: _Facts) -> dict[ValueId, int]:
    """The last reader of each value and of all its views; where nobody reads it, its maker."""
    ends: dict[ValueId, int] = {}
    for value, maker in facts.made.items():
        root = facts.roots.get(value, value)
        last = max(facts.readers.get(value, ()), default=maker)
        ends[root] = max(ends.get(root, -1), int(last))
    return ends


def _pairs(maker: int, readers: tuple[OperatorIndex, ...]) -> list[tuple[int, int]]:
    """Each reader with the touch before it: the reader before it, or who made the value."""
    touches = [maker, *(int(reader) for reader in readers)]
    return [(at, before) for before, at in pairwise(touches)]


def _bytes(graph: Graph, value: ValueId) -> float:
    return min(float(graph.values[value].spec.nbytes), MOST)
