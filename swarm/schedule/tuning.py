"""The policy ``deadline`` while a job trains: codecs follow what was measured, without swinging (D8).

The last few steps are remembered, and the middle of what they measured counts, so that one odd step changes
nothing. Codecs change where the busiest resource takes clearly longer than it must, or where finer codecs
leave a clear margin: what lies between leaves them as they are.
"""

import statistics
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from swarm.graph.dag import Graph, activations
from swarm.graph.stage import Stage
from swarm.ids import PeerId
from swarm.schedule.deadline import Deadline, busiest, choose, distortion
from swarm.schedule.hiding import what_hides
from swarm.schedule.network import NetworkModel
from swarm.schedule.quality import Rung, admitted
from swarm.schedule.transfers import resources_of, slowest_compute
from swarm.wire.codecs import CodecSpec, Quality

REMEMBERED: Final = 3
"""Steps of which the middle counts: a change is followed at the second that shows it."""
FEWEST: Final = 2
"""Steps before anything is changed: the first one also warms up."""
MARGIN: Final = 0.15
"""What times may differ by without a change of codecs, each way."""

Pair = tuple[PeerId, PeerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What one step measured."""

    compute: Sequence[float]
    """Seconds of a micro-batch on each stage."""
    rates: Mapping[Pair, float]
    """Bytes a second from a peer to another, where there was something to measure."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What follows from the steps so far."""

    codecs: tuple[CodecSpec, ...]
    hiding: str
    """What hides, or does not, in a sentence."""


class Tuner:
    """The codecs of one plan. ``rungs``: all there are, from the finest to the coarsest."""

    def __init__(
        self,
        graph: Graph,
        stages: Sequence[Stage],
        holders: Sequence[PeerId],
        *,
        quality: Quality,
        rungs: Sequence[Rung],
    ) -> None:
        self._graph, self._stages, self._holders = graph, stages, holders
        self._lossy = activations(graph)
        self._quality: Quality = quality
        self._rungs = rungs
        self._samples: deque[Sample] = deque(maxlen=REMEMBERED)
        self._hidden: bool | None = None

    def heard(self, codecs: Sequence[CodecSpec], sample: Sample) -> Tuning | None:
        """A step was measured; ``codecs`` are the latest agreed on. None where nothing new is to be said."""
        self._samples.append(sample)
        if len(self._samples) < FEWEST:
            return None
        deadline = self._deadline()
        if not deadline.resources:
            return None
        rungs = admitted(self._rungs, self._quality)
        best, current = choose(deadline, rungs), self._known(codecs)
        latest = max(deadline.compute, busiest(deadline.resources, best))
        if busiest(deadline.resources, current) > latest * (1 + MARGIN):
            chosen = best
        else:
            cautious = choose(deadline, rungs, margin=MARGIN)
            chosen = cautious if distortion(cautious) < distortion(current) else current
        return self._told(deadline, chosen, changed=chosen != current)

    def _told(self, deadline: Deadline, chosen: tuple[Rung, ...], *, changed: bool) -> Tuning | None:
        busy = busiest(deadline.resources, chosen)
        hidden = busy <= deadline.compute * (1 + (MARGIN if self._hidden else 0.0))
        if not changed and hidden == self._hidden:
            return None
        self._hidden = hidden
        sentences = what_hides(deadline, chosen, self._quality, self._rungs)
        return Tuning(codecs=tuple(rung.codec for rung in chosen), hiding="; ".join(sentences))

    def _deadline(self) -> Deadline:
        """What the middle of the last steps comes to; of two the one that asks for less compression."""
        stages = range(len(self._stages))
        compute = [_middle(sample.compute[stage] for sample in self._samples) for stage in stages]
        pairs = dict.fromkeys(pair for sample in self._samples for pair in sample.rates)
        rates = {
            pair: _middle(sample.rates[pair] for sample in self._samples if pair in sample.rates)
            for pair in pairs
        }
        network = NetworkModel(rates=rates)
        return Deadline(
            boundaries=len(self._stages),
            resources=resources_of(self._graph, self._stages, self._holders, network, self._lossy),
            compute=slowest_compute(self._holders, compute),
        )

    def _known(self, codecs: Sequence[CodecSpec]) -> tuple[Rung, ...]:
        """The rungs of ``codecs``; one that no table here has a row for is as good as none."""
        known = {rung.codec: rung for rung in self._rungs}
        return tuple(known.get(codec) or Rung(codec=codec, distortion=inf, quality="any") for codec in codecs)


def _middle(found: Iterable[float]) -> float:
    return statistics.median_high(found)
