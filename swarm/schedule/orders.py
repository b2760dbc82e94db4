"""Orders of peers that are worth a partition: early stages hold more micro-batches, so memory comes first."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations
from typing import Final

from swarm.schedule.workload import PeerOffer

FEW_PEERS: Final = 16
"""Up to so many peers, every order below is tried; among more, the first that can hold the job is taken."""

_ALL_ORDERS: Final = 4
"""Up to so many peers, every order at all is tried where none of those below can hold the job."""


def likely_orders(offers: Sequence[PeerOffer]) -> Iterator[tuple[PeerOffer, ...]]:
    """By falling memory, rising memory, falling speed and rising speed, each order of kinds once."""
    by_memory = sorted(offers, key=lambda offer: (offer.memory, offer.flops, offer.peer))
    by_speed = sorted(offers, key=lambda offer: (offer.flops, offer.memory, offer.peer))
    return _distinct(map(tuple, (by_memory[::-1], by_memory, by_speed[::-1], by_speed)))


def all_orders(offers: Sequence[PeerOffer]) -> Iterator[tuple[PeerOffer, ...]]:
    """Every order of few peers, those of equal kinds once; none for more."""
    return _distinct(permutations(offers) if len(offers) <= _ALL_ORDERS else ())


def _distinct(orders: Iterable[tuple[PeerOffer, ...]]) -> Iterator[tuple[PeerOffer, ...]]:
    seen: set[tuple[tuple[int, float], ...]] = set()
    for order in orders:
        kinds = tuple((offer.memory, offer.flops) for offer in order)
        if kinds not in seen:
            seen.add(kinds)
            yield order
