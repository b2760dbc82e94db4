"""Peers in the order of the pipeline, and what a boundary between two of them costs."""

from dataclasses import dataclass

import numpy as np

from swarm.schedule.table import Floats, StageTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Peers in the order of the pipeline."""

    memory: tuple[int, ...]
    """Bytes that each offers."""
    flops: tuple[float, ...]
    """Operations a second of each, positive and finite."""
    lacks: tuple[frozenset[str], ...] = ()
    """What each cannot run; nothing where it is empty."""
    seconds_per_byte: Floats | None = None
    """From each peer (rows) to each other, where rates are known."""

    def kind(self, peer: int) -> tuple[int, float, frozenset[str]]:
        """What decides which stages a peer can take: equal for peers that are alike."""
        lacks = self.lacks[peer] if self.lacks else frozenset[str]()
        return self.memory[peer], self.flops[peer], lacks

    @property
    def peers(self) -> int:
        """How many there are."""
        return len(self.memory)


class Links:
    """Boundaries at every place of a table, between every two peers of a chain."""

    def __init__(self, table: StageTable, chain: Chain) -> None:
        self._forward = table.forward_bytes
        self._backward = table.backward_bytes
        self._rates = chain.seconds_per_byte

    def all_seconds(self, peer: int, later: slice) -> Floats:
        """Seconds that a boundary needs for a micro-batch, by later peer (rows) and place.

        Activations and gradients travel at the same time, in opposite directions. Zero where no rate is
        known.
        """
        if self._rates is None:
            return np.zeros((1, len(self._forward)))
        forward = np.outer(self._rates[peer, later], self._forward)
        return np.maximum(forward, np.outer(self._rates[later, peer], self._backward))

    def all_traffic(self, peer: int, later: slice) -> Floats:
        """What the same boundaries cost in traffic: seconds both ways, or bytes where no rate is known."""
        if self._rates is None:
            return (self._forward + self._backward)[np.newaxis]
        forward = np.outer(self._rates[peer, later], self._forward)
        traffic: Floats = forward + np.outer(self._rates[later, peer], self._backward)
        return traffic

    def seconds(self, peer: int, later: int, place: int) -> float:
        """One entry of :meth:`all_seconds`."""
        return float(self.all_seconds(peer, slice(later, later + 1))[0, place])

    def traffic(self, peer: int, later: int, place: int) -> float:
        """One entry of :meth:`all_traffic`."""
        return float(self.all_traffic(peer, slice(later, later + 1))[0, place])
