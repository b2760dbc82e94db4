"""What lives shortly while a stage computes one micro-batch: values, gradients, and the optimizer's scratch.

Backward lets go of what autograd kept as it goes from the last operator to the first, while gradients of
parameters pile up. So the worst moment is at no fixed operator; ``Moments`` has what each one adds, and
``swarm.schedule.memory`` finds the worst of every possible stage.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from swarm.graph.cut import trained_uses
from swarm.graph.dag import Graph, consumers
from swarm.ids import OperatorIndex, ValueId
from swarm.schedule.calls import MOST, Call, aliases, elements, saturated
from swarm.schedule.spans import Sizes
from swarm.wire.records.manifest import Optimizer
from swarm.wire.tensors import ITEM_BYTES

Integers = NDArray[np.int64]

SQUARED: Final = 2**16
"""Elements of a gradient that are squared at a time, in float64 (``swarm.train.stage_parameters``)."""

_SQUARE_BYTES: Final = 8
"""For each of them: the number in float64; their squares are summed without being kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lives:
    """Where values are made and read, views counting as what they view."""

    roots: Mapping[ValueId, ValueId]
    """The value whose memory each one lies in, where that is another."""
    made: Mapping[ValueId, int]
    ends: Mapping[ValueId, int]
    """The last reader of each root and of all its views."""
    kept: frozenset[ValueId]
    """Roots that autograd keeps at some operator."""


Hop = tuple[int, int, float]
"""From one operator to a later one, so many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hops:
    """Hops, as arrays."""

    begins: Integers
    ends: Integers
    sizes: Sizes

    @classmethod
    def of(cls, hops: Sequence[Hop]) -> "_Hops":
        return cls(
            begins=np.asarray([begin for begin, _, _ in hops], dtype=np.int64),
            ends=np.asarray([end for _, end, _ in hops], dtype=np.int64),
            sizes=np.asarray([size for _, _, size in hops], dtype=np.float64),
        )


class Moments:
    """What the operators of a graph add for a moment, in bytes by operator."""

    def __init__(self, graph: Graph, lives: Lives, optimizer: Optimizer) -> None:
        count = len(graph.operators)
        self._graph, self._lives, self._readers = graph, lives, consumers(graph)
        self._forward, self._backward = np.zeros(count), np.zeros(count)
        dying: list[Hop] = []
        for index, operator in enumerate(graph.operators):
            dying += self._add(index, Call(graph, operator))
        self.fresh = np.zeros(count + 1)
        """The gradients of parameters; entry i sums those that all operators before i make."""
        self.boundary = np.zeros(count)
        """Scratch of the step boundary for the parameters whose first use it is."""
        for value, uses in trained_uses(graph).items():
            self._add_parameter(value, uses, optimizer)
        self.fresh = np.cumsum(self.fresh)
        self._dying = _Hops.of(dying)
        self._gradients = _Hops.of(self._hops())

    def forward(self, first: int) -> Sizes:
        """In stages that start with operator ``first``, while each later one runs forward.

        That is scratch, and its inputs that were made in the stage and that nothing keeps or reads later.
        """
        sums: Sizes = self._forward[first:].copy()
        here = self._dying.begins >= first
        np.add.at(sums, self._dying.ends[here] - first, self._dying.sizes[here])
        return sums

    def backward(self, first: int) -> Sizes:
        """In stages that start with operator ``first``, while each later one runs backward.

        Those are scratch, and the gradients of values made in the stage, from their last reader to their
        maker. What comes from another stage is counted with what is on its way.
        """
        count = len(self._backward)
        found = self._gradients
        here = found.begins >= first
        steps = np.bincount(found.begins[here], weights=found.sizes[here], minlength=count + 1)
        steps -= np.bincount(found.ends[here] + 1, weights=found.sizes[here], minlength=count + 1)
        sums: Sizes = self._backward[first:] + np.cumsum(steps)[first:count]
        return sums

    def _add(self, index: int, call: Call) -> list[Hop]:
        """Take in one operator; returns the inputs that it reads last."""
        dying = []
        for value in dict.fromkeys(self._lives.roots.get(v, v) for v in call.inputs):
            size, last = _bytes(self._graph, value), self._lives.ends.get(value, index)
            made = self._graph.values[value].kind == "output"
            if made and last == index and value not in self._lives.kept:
                dying.append((self._lives.made[value], index, size))
        for value in call.inputs:
            read = self._graph.values[value]
            if read.kind == "output" and read.differentiable and self._readers[value][-1] > index:
                # The gradient of this use, and the sum with those of later ones.
                self._backward[index] += 2.0 * _bytes(self._graph, value)
        forward, backward = _scratch(call)
        self._forward[index] += forward
        self._backward[index] += backward if call.trained else 0.0
        return dying

    def _add_parameter(self, value: ValueId, uses: Sequence[OperatorIndex], optimizer: Optimizer) -> None:
        size, spec = _bytes(self._graph, value), self._graph.values[value].spec
        for use in uses:
            self.fresh[use + 1] += size
        squares = _SQUARE_BYTES * min(float(spec.elements), float(SQUARED))
        total = size if len(uses) > 1 else 0.0
        scratch = total + max(squares, size * _update_scratch(optimizer))
        self.boundary[uses[0]] = max(self.boundary[uses[0]], scratch)

    def _hops(self) -> list[Hop]:
        """The gradient of each value, from one operator that touches it to the next.

        The gradient of a view is a view of its source's, except where it has fewer elements.
        """
        source: dict[ValueId, ValueId] = {}
        touches: dict[ValueId, set[int]] = {}
        for index, operator in enumerate(self._graph.operators):
            call = Call(self._graph, operator)
            for made, of in aliases(call).items():
                if _bytes(self._graph, made) == _bytes(self._graph, of):
                    source[made] = source.get(of, of)
            for value in (*call.inputs, *call.outputs):
                if self._graph.values[value].differentiable and value in self._lives.made:
                    touches.setdefault(source.get(value, value), set()).add(index)
        return [
            (before, at, _bytes(self._graph, value))
            for value, found in touches.items()
            for before, at in pairwise(sorted(found))
        ]


def _scratch(call: Call) -> tuple[float, float]:
    """What torch's kernels for the CPU allocate for themselves, forward and backward; measured.

    Convolutions reorder what they read, losses and norms make what they need of the gradient first.
    """
    read = call.tensor(0)
    size = 0.0 if read is None else saturated(elements(read) * ITEM_BYTES[read.dtype])
    made = sum(_bytes(call.graph, value) for value in call.outputs)
    match call.name:
        case "conv1d" | "conv2d" | "conv3d" | "convolution":
            return size, 2.0 * size
        case "_native_batch_norm_legit_functional" | "cross_entropy_loss" | "scaled_dot_product_attention":
            return 0.0, size
        case "mse_loss" | "l1_loss" | "smooth_l1_loss" | "huber_loss":
            return size, size
        case "upsample_nearest2d" | "upsample_bilinear2d":
            return size + made, size
        case "lstm" | "gru":
            return 5.0 * made, 8.0 * made
        case _:
            return 0.0, 0.0


def _update_scratch(optimizer: Optimizer) -> int:
    """Tensors of a parameter's size that torch's optimizer needs for its update."""
    decayed = optimizer.kind != "adamw" and optimizer.weight_decay > 0
    return (2 if optimizer.kind != "sgd" else int(optimizer.nesterov)) + int(decayed)


def _bytes(graph: Graph, value: ValueId) -> float:
    return saturated(min(float(graph.values[value].spec.nbytes), MOST))
