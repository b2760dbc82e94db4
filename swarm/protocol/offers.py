"""Who offers memory to a job, and when to plan with that: part of the coordination machine."""

from collections import Counter
from collections.abc import Collection
from typing import Final

from swarm.ids import PeerId, short
from swarm.protocol.terms import Resources
from swarm.wire.records.plan import Plan

SETTLE_SECONDS: Final = 2.0
"""Seconds from the last change of offers to a plan, so that peers that start together share the job."""

MOST_SETTLE_SECONDS: Final = 10.0
"""Seconds from the first change of offers to a plan, however many follow: nobody can put it off for ever."""

BENCH_SECONDS: Final = 30.0
"""For how long a peer whose stage could not be loaded is not planned with; doubled each time."""

MOST_DOUBLINGS: Final = 6
"""After so many it is about half an hour, and stays."""


MOST_TOLD: Final = 4
"""Peers without a link to others that a plan names."""


class Offers:
    """The offers to one job. ``due`` is when to plan next, or None."""

    def __init__(self) -> None:
        self.due: float | None = None
        self._offers: dict[PeerId, Resources] = {}
        self._links: dict[PeerId, frozenset[PeerId]] = {}
        """To whom each peer says that it is linked; who says nothing is taken to be linked to all."""
        self._first: float | None = None
        """When the first change came that no plan has seen."""
        self._benched: dict[PeerId, tuple[float, int]] = {}
        """Until when a peer is left out, and how often it was."""

    def __contains__(self, peer: object) -> bool:
        return peer in self._offers

    def take(self, resources: Resources) -> bool:
        """Take an offer, the withdrawal of one where it has no memory; whether that changed anything."""
        if resources.memory <= 0:
            return self.drop(resources.peer)
        changed = self._offers.get(resources.peer) != resources
        self._offers[resources.peer] = resources
        return changed

    def drop(self, peer: PeerId) -> bool:
        """Forget what a peer offered; whether it did."""
        return self._offers.pop(peer, None) is not None

    def report(self, peer: PeerId, links: frozenset[PeerId]) -> bool:
        """To whom a peer is linked; whether that is news."""
        changed = self._links.get(peer) != links
        self._links[peer] = links
        return changed

    def leave(self, peer: PeerId) -> bool:
        """A peer has left: forget all of it; whether it had made an offer."""
        self._links.pop(peer, None)
        return self.drop(peer)

    def settle(self, now: float) -> None:
        """Plan soon, but not before the other offers had time to come in."""
        if self._first is None:
            self._first = now
        self.due = min(now + SETTLE_SECONDS, self._first + MOST_SETTLE_SECONDS)

    def bench(self, peer: PeerId, now: float) -> None:
        """Leave out a peer that could not load what it was given, longer each time."""
        _, times = self._benched.get(peer, (0.0, 0))
        self._benched[peer] = (now + BENCH_SECONDS * 2.0 ** min(times, MOST_DOUBLINGS), times + 1)

    def begin_plan(self, now: float) -> tuple[tuple[Resources, ...], bool]:
        """What to plan with now, by peer, and whether peers that failed are left out; those come back."""
        away = {peer: until for peer, (until, _) in self._benched.items() if now < until}
        returns = [until for peer, until in away.items() if peer in self._offers]
        self._first, self.due = None, min(returns, default=None)
        usable = tuple(self._offers[peer] for peer in sorted(self._offers) if peer not in away)
        return usable, bool(returns)

    def takers(
        self, plan: Plan, stage: int, leaving: Collection[PeerId], now: float
    ) -> tuple[Resources, ...]:
        """Who could take ``stage`` of ``plan`` from its holder: the idle first, then the fastest.

        They have the memory beside the stages of the plan that they hold, and links to all other holders.
        """
        holders = {PeerId(one.holder) for index, one in enumerate(plan.stages) if index != stage}
        used = Counter[PeerId]()
        for one in plan.stages:
            used[PeerId(one.holder)] += one.memory
        found = [
            offer
            for peer, offer in self._offers.items()
            if peer not in leaving
            and peer != plan.stages[stage].holder
            and now >= self._benched.get(peer, (0.0, 0))[0]
            and offer.memory - used[peer] >= plan.stages[stage].memory
            and all(self._may_talk(peer, other) for other in holders)
        ]
        return tuple(sorted(found, key=lambda offer: (offer.peer in used, -offer.flops, offer.peer)))

    def linked(self, offers: Collection[Resources]) -> tuple[tuple[Resources, ...], tuple[str, ...]]:
        """Those of ``offers`` whose peers are all linked with each other, and a sentence on each of the rest.

        Whoever lacks the most links goes first; of equals, whoever offers less.
        """
        kept = {offer.peer: offer for offer in offers}
        missing = {peer: {other for other in kept if not self._may_talk(peer, other)} for peer in kept}
        told: list[str] = []
        while any(missing.values()):
            out = max(kept.values(), key=lambda offer: (len(missing[offer.peer]), -offer.memory, offer.peer))
            others = ", ".join(map(short, sorted(missing[out.peer])))
            told.append(
                f"peer {short(out.peer)} is left out: it has no link with {others}, and waits for a relay"
            )
            del kept[out.peer], missing[out.peer]
            for rest in missing.values():
                rest.discard(out.peer)
        return tuple(kept.values()), tuple(told[:MOST_TOLD])

    def _may_talk(self, peer: PeerId, other: PeerId) -> bool:
        """Whether both say that there is a link between them, as far as they say anything."""
        return peer == other or (
            other in self._links.get(peer, {other}) and peer in self._links.get(other, {peer})
        )
