"""How much may be under way, so that control is not stuck behind bulk on the path either (decision D3).

TCP fills whatever buffer is before the slowest hop, of a router at home often a second's worth. So what a
link has under way is bounded by the rate at which it arrives, times the round trip that the path has without
a queue, and a little more, which keeps the hop busy. What was written before a PING has arrived when its
PONG comes: that gives both numbers, on every system and through relays.

The rate is the highest of the last few samples, as in BBR (draft-cardwell-iccrg-bbr-congestion-control), and
the round trip the shortest one. A PONG may wait in a queue of the way back, which holding back does not
shorten: how long is seen by the other side's PINGs, which say when they left, as one-way delays are told in
LEDBAT (RFC 6817, section 3.4.2). Where a queue stays although this link does not fill it, other traffic does:
then it counts as a part of the path, since who alone held back would starve.
"""

from typing import Final

from msgspec import Struct

from swarm.wire.limits import MIN_DATA_FRAME_BYTES

QUEUE_SECONDS: Final = 0.04
"""How long a queue this link may keep: it bridges what a busy program is late by. Twice that, for bulk both
ways, and a bulk frame stay within the 0.1 s by which bulk may delay control (DESIGN section 6)."""
ROUND_TRIP_SHARE: Final = 0.5
"""How much of a round trip is added to that: round trips vary with their length."""
BEGINNING_BYTES: Final = 64 * 1024
LEAST_BYTES: Final = 32 * 1024
"""May be under way at first, and always."""
PINGS: Final = 5
"""Unanswered pings at most: with those of the heartbeat never more than MAX_UNSENT_PONGS."""
PINGS_PER_FLIGHT: Final = 4
RATE_SAMPLES: Final = 16
SHORTEST_SECONDS: Final = QUEUE_SECONDS / 2
"""A rate is taken over no less: shapers let bursts pass."""
PACE: Final = 1.25
"""How much faster than bulk arrives it may be written, so that a rate that rises is found; as BBR probes."""
BURST_SECONDS: Final = QUEUE_SECONDS / 2
"""What the pace lets pass at once. PONGs wait behind what is written: if that were all at once, so would they
be, and what the other side writes next (Zhang, Shenker and Clark, SIGCOMM 1991)."""
MOST_PACED: Final = 50e6
"""Bytes a second from which on a program's own lateness counts for more than bursts: pace would add to it."""
OTHERS_SECONDS: Final = 2.0
OTHERS_ROUND_TRIPS: Final = 3.0
"""A queue that stays so long, and so many round trips, although this link does not fill it is that of others.
"""
SHORTEST_WAY_SECONDS: Final = 60.0
"""How long the shortest time on the way back counts, at least: clocks do not run at quite the same speed."""
WAY_BACK_SECONDS: Final = 1.0
"""How old a time on the way back may be: who sends no bulk sends few pings, and keeps no queue."""
MOST_BACK: Final = 2.0
"""A queue on the way back counts up to so many times what a link may keep, since programs are late, and no
further: whoever says that all waits there would else make this link's own queue grow without end."""
LOOK_SECONDS: Final = 10.0
LOOK_ROUND_TRIPS: Final = 1.0
"""So often and so long half the flight is under way: whether the round trip is shorter without this link's
own queue, which others' links had taken for a part of the path, or this one's that began beside them."""


class _Mark(Struct, frozen=True, gc=False):
    """A ping on its way, what was written before it, and what had arrived some time before."""

    token: bytes
    total: int
    at: float
    since: "_Arrival"


class _Arrival(Struct, frozen=True, gc=False):
    """What is known to have arrived, since when, and when that had been written."""

    total: int
    at: float
    left_at: float
    after_rest: bool = False
    """Whether nothing was under way: the path has to be filled first, so a rate from here on is too low."""


class WayBack:
    """How long what the other side sends waits on its way here."""

    def __init__(self) -> None:
        self._queue = 0.0
        self._heard_at = float("-inf")
        self._shortest = self._shortest_before = float("inf")
        self._next = float("-inf")

    def heard(self, sent_at: float, now: float) -> None:
        """A ping came that left at ``sent_at`` of the other side's clock, of which nothing is known."""
        way = now - sent_at
        if now >= self._next:
            self._shortest_before, self._shortest = self._shortest, way
            self._next = now + SHORTEST_WAY_SECONDS
        self._shortest = min(self._shortest, way)
        self._queue = way - min(self._shortest, self._shortest_before)
        self._heard_at = now

    def queue(self, now: float) -> float:
        """Seconds of queue there, as of late."""
        return self._queue if now - self._heard_at < WAY_BACK_SECONDS else 0.0


class Flight:
    """The bytes of one link that are under way. ``total`` is always of all bytes written so far."""

    def __init__(self) -> None:
        self.limit = BEGINNING_BYTES
        """Bytes that may be under way."""
        self.rate = 0.0
        """Bytes a second that arrive; 0 while that is not known."""
        self.way_back = WayBack()
        self._round_trip = float("inf")
        self._arrived = self._since = _Arrival(0, 0.0, 0.0)
        self._marks: list[_Mark] = []
        self._rates: list[float] = []
        self._full_at = float("-inf")
        self._look_at = 0.0
        self._look_until = 0.0
        self._rests = True
        """Whether no more waited when bulk was written last."""
        self._written = 0
        self._free_at = 0.0
        self._beginning = True
        """Whether no queue was seen yet."""
        self._shortest = float("inf")
        self._shortest_until = float("inf")

    def has_room(self, total: int) -> bool:
        """Whether more bulk may be written."""
        return total - self._arrived.total < self.limit

    @property
    def bulk_at(self) -> float:
        """From when on the pace lets more bulk be written."""
        return self._free_at - BURST_SECONDS

    def is_stuck(self, total: int) -> bool:
        """Whether nothing but a ping will show that there is room."""
        return not self._marks and not self.has_room(total)

    def is_ping_due(self, total: int) -> bool:
        """Whether a ping belongs before the bulk that is written next."""
        if not self._marks:
            return True
        return len(self._marks) < PINGS and (total - self._marks[-1].total) * PINGS_PER_FLIGHT >= self.limit

    def wrote(self, total: int, *, more: bool, now: float) -> None:
        """Bulk was written; ``more`` says whether more waits."""
        self._rests = not more
        if 0.0 < self.rate < MOST_PACED and not self._beginning:
            self._free_at = max(self._free_at, now) + (total - self._written) / (PACE * self.rate)
        self._written = total
        if more and (now < self.bulk_at or not self.has_room(total)):
            self._full_at = now

    def pinged(self, token: bytes, total: int, now: float) -> None:
        """A ping was written after ``total`` bytes."""
        if not self._marks and self._rests:  # what came before says nothing about the rate
            self._arrived = self._since = _Arrival(total, now, now, after_rest=True)
        self._marks.append(_Mark(token, total, now, self._since))

    def answered(self, token: bytes, now: float) -> None:
        """A pong came. One to nothing is ignored."""
        if all(mark.token != token for mark in self._marks):
            return
        mark = self._marks.pop(0)
        while mark.token != token:
            mark = self._marks.pop(0)
        if now - self._since.at >= SHORTEST_SECONDS:
            self._since = self._arrived
        self._arrived = _Arrival(mark.total, now, mark.at)
        sample = now - mark.at
        self._round_trip = min(self._round_trip, sample)
        back = min(self.way_back.queue(now), MOST_BACK * self._allowance, sample - self._round_trip)
        self._learn_round_trip(sample - back, now)
        self._learn_rate(mark, now)
        if self.rate:
            self._set_limit(sample - back, back, now)

    def _learn_round_trip(self, sample: float, now: float) -> None:
        self._shortest = min(self._shortest, sample)
        if now < self._shortest_until and self._shortest_until < float("inf"):
            return
        allowed = self._allowance
        if self._shortest_until < float("inf") and self._shortest > self._round_trip + 2 * allowed:
            self._round_trip = self._shortest - allowed
        self._shortest = float("inf")
        self._shortest_until = now + max(OTHERS_SECONDS, OTHERS_ROUND_TRIPS * sample)

    def _learn_rate(self, mark: _Mark, now: float) -> None:
        """A sample counts where this link was held up by nothing but its flight, or where it is higher.

        Answers that come late all at once seem to come fast: nothing arrives faster than it was written.
        """
        since = mark.since
        rate = (mark.total - since.total) / max(now - since.at, mark.at - since.left_at, SHORTEST_SECONDS)
        if rate > self.rate or (self._full_at >= since.at and not since.after_rest):
            self._rates = [*self._rates[1 - RATE_SAMPLES :], rate]
            self.rate = max(self._rates)

    def _set_limit(self, sample: float, back: float, now: float) -> None:
        """Twice as much until there is a queue, so that a fast path is filled soon; half of it for a look.

        ``back`` is how long the pong waited in the other side's queue.
        """
        self._beginning = self._beginning and sample < self._round_trip + QUEUE_SECONDS / 4
        if now >= self._look_at and not self._beginning:
            self._look_until = now + LOOK_ROUND_TRIPS * sample
            self._look_at = self._look_until + LOOK_SECONDS
        gain = 2.0 if self._beginning else 0.5 if now < self._look_until else 1.0
        wanted = self.rate * (self._round_trip + self._allowance + back) + MIN_DATA_FRAME_BYTES
        self.limit = max(LEAST_BYTES, int(gain * wanted))

    @property
    def _allowance(self) -> float:
        return QUEUE_SECONDS + ROUND_TRIP_SHARE * self._round_trip
