"""The policy ``deadline``: the least distortion for which communication hides behind computation (D8).

A *resource* is what several transfers share, such as a peer's uplink (D6): it is busy for the sum of their
times. Communication hides where no resource is busy for longer, in a micro-batch, than the slowest peer
computes. Where not even the coarsest codecs achieve that, the deadline is what they do achieve on the busiest
resource, so that nothing else is distorted for more.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final

from swarm.schedule.codec_model import bits_per_element
from swarm.schedule.quality import Rung
from swarm.wire.codecs import CodecSpec

MOST_STATES: Final = 4096
"""Beginnings of a choice that are kept. In a chain of stages there are never more than there are rungs; of
more, those with the least distortion go on."""

_SLACK: Final = 1e-9
"""By which a sum may exceed the deadline: that of rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """One tensor of each micro-batch, one way."""

    boundary: int
    """The stage that sends it, or its activation, forward: its codec is the boundary's."""
    backward: bool
    elements: int
    width: int
    """Bytes of an element as it is."""
    rate: float
    """Bytes a second."""
    lossy: bool = True
    """Whether codecs take it; what they do not travels as it is."""

    def seconds(self, rung: Rung) -> float:
        """How long it takes in a codec, with what encoding and decoding take."""
        if not self.lossy or rung.codec == CodecSpec():
            return self.elements * self.width / self.rate
        size = bits_per_element(rung.codec, backward=self.backward) / 8
        return self.elements * (size / self.rate + rung.coding)


Resource = tuple[Transfer, ...]
"""One at least."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """What there is to be hidden, and behind what."""

    boundaries: int
    """One for each stage, in order: the last sends nothing forward."""
    resources: Sequence[Resource]
    compute: float
    """Seconds of a micro-batch on the slowest peer."""


def choose(deadline: Deadline, rungs: Sequence[Rung], *, margin: float = 0.0) -> tuple[Rung, ...]:
    """A rung for each boundary: the least sum of distortions that meets the deadline.

    ``rungs`` are from the finest to the coarsest, the first ``fp32``. With a ``margin`` each resource is done
    by so much earlier, where the coarsest are. The same from the same arguments.
    """
    resources = deadline.resources
    usable = [_usable(boundary, resources, rungs) for boundary in range(deadline.boundaries)]
    coarsest = tuple(each[-1] for each in usable)
    latest = max(deadline.compute, busiest(resources, coarsest)) / (1 + margin)
    limits = [max(latest, _busy(resource, coarsest)) * (1 + _SLACK) for resource in resources]
    return _search(usable, list(zip(resources, limits, strict=True))) or coarsest


def busiest(resources: Iterable[Resource], rungs: Sequence[Rung]) -> float:
    """Seconds of a micro-batch for which the busiest resource is busy, with one rung for each boundary."""
    return max((_busy(resource, rungs) for resource in resources), default=0.0)


def distortion(rungs: Iterable[Rung]) -> float:
    """Of all boundaries together."""
    return sum(rung.distortion for rung in rungs)


def _busy(resource: Resource, rungs: Sequence[Rung]) -> float:
    return sum(transfer.seconds(rungs[transfer.boundary]) for transfer in resource)


def _usable(boundary: int, resources: Sequence[Resource], rungs: Sequence[Rung]) -> list[Rung]:
    """The rungs that are quicker than each finer one in all transfers of a boundary: the last is quickest."""
    transfers = [t for resource in resources for t in resource if t.boundary == boundary and t.lossy]
    kept = [rungs[0]]
    for rung in rungs[1:]:
        if transfers and all(t.seconds(rung) < t.seconds(kept[-1]) for t in transfers):
            kept.append(rung)
    return kept


def _search(
    usable: Sequence[Sequence[Rung]], resources: Sequence[tuple[Resource, float]]
) -> tuple[Rung, ...] | None:
    """Boundary by boundary, each resource with its limit.

    Of the beginnings that later resources cannot tell apart, the best is kept.
    """
    members = [{transfer.boundary for transfer in resource} for resource, _ in resources]
    states: list[tuple[Rung, ...]] = [()]
    for boundary, rungs in enumerate(usable):
        due = [each for each, group in zip(resources, members, strict=True) if max(group) == boundary]
        still = sorted({b for group in members if max(group) > boundary for b in group if b <= boundary})
        best: dict[tuple[Rung, ...], tuple[Rung, ...]] = {}
        for path in ((*state, rung) for state in states for rung in rungs):
            if any(_busy(resource, path) > limit for resource, limit in due):
                continue
            key = tuple(path[index] for index in still)
            if key not in best or distortion(path) < distortion(best[key]):
                best[key] = path
        states = nsmallest(MOST_STATES, best.values(), key=distortion)
    return min(states, key=distortion, default=None)
