"""Bulk both ways at once: what one side has under way delays the answers to the other."""

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from swarm.protocol.session_flight import Flight, WayBack
from swarm.protocol.session_meters import Liveness
from swarm.wire.limits import MIN_DATA_FRAME_BYTES

FRAME = MIN_DATA_FRAME_BYTES
TOKEN = 20
"""Bytes of a ping or pong."""
STEP = 0.001
WARM_UP = 3.0


@dataclass
class Side:
    """Bulk without end into a first hop of ``rate`` bytes a second; now and then the program is late."""

    rate: float
    round_trip: float
    late: float
    source: random.Random
    flight: Flight = field(default_factory=Flight)
    liveness: Liveness = field(default_factory=lambda: Liveness(heartbeat=3.0, now=0.0))
    other: "Side | None" = None
    total: int = 0
    free_at: float = 0.0
    wakes_at: float = 0.0
    coming: deque[tuple[float, bytes, bool]] = field(default_factory=deque)
    """When, the token of a ping or a pong (none: bulk), and whether it is a pong."""
    arrived: int = 0

    def send(self, size: int, now: float, token: bytes = b"", *, pong: bool = False) -> None:
        assert self.other is not None
        self.free_at = max(self.free_at, now) + size / self.rate
        self.other.coming.append((self.free_at + self.round_trip / 2, token, pong))

    def ping(self, now: float) -> None:
        token = self.liveness.ping(now)
        self.flight.pinged(token, self.total, now)
        self.send(TOKEN, now, token)

    def turn(self, now: float) -> None:
        if now < self.wakes_at:
            return
        if self.source.random() < 0.05:
            self.wakes_at = now + self.source.random() * self.late
            return
        while self.coming and self.coming[0][0] <= now:
            self._receive(*self.coming.popleft()[1:], now)
        if self.flight.is_stuck(self.total):
            self.ping(now)
        while self.flight.has_room(self.total) and now >= self.flight.bulk_at:
            if self.flight.is_ping_due(self.total):
                self.ping(now)
            self.total += FRAME
            self.send(FRAME, now)
            self.flight.wrote(self.total, more=True, now=now)

    def _receive(self, token: bytes, pong: bool, now: float) -> None:
        if not token:
            self.arrived += FRAME
        elif pong:
            self.flight.answered(token, now)
        else:
            self.flight.way_back.heard(Liveness.sent_at(token), now)
            self.send(TOKEN, now, token, pong=True)


def goodputs(rate: float, round_trip: float, *, late: float, seconds: float = 20.0) -> Sequence[float]:
    """The share of the rate that bulk gets each way, once it has flowed for a while."""
    source = random.Random(0)
    sides = [Side(rate, round_trip, late, source), Side(rate, round_trip, late, source)]
    sides[0].other, sides[1].other = sides[1], sides[0]
    before = [0, 0]
    for step in range(int((WARM_UP + seconds) / STEP)):
        if step == int(WARM_UP / STEP):
            before = [side.arrived for side in sides]
        for side in sides:
            side.turn(step * STEP)
    return [(side.arrived - b) / seconds / rate for side, b in zip(sides, before, strict=True)]


@pytest.mark.parametrize(
    ("rate", "round_trip", "late", "least"),
    [
        (1e6, 0.0005, 0.0, 0.95),
        (1e6, 0.0005, 0.03, 0.9),
        (1e6, 0.1, 0.03, 0.9),
        (12.5e6, 0.03, 0.0, 0.95),
        (12.5e6, 0.03, 0.03, 0.9),
        (12.5e6, 0.1, 0.0, 0.95),
    ],
)
def test_both_ways_are_filled(rate: float, round_trip: float, late: float, least: float) -> None:
    assert min(goodputs(rate, round_trip, late=late)) > least


def test_a_queue_on_the_way_back_is_seen_whatever_the_other_clock_says() -> None:
    way = WayBack()
    way.heard(5000.0, 10.0)
    assert way.queue(10.0) == 0.0
    way.heard(5001.0, 11.25)
    assert way.queue(11.3) == pytest.approx(0.25)
    assert way.queue(13.0) == 0.0, "it is long ago"


def test_clocks_of_different_speeds_do_not_make_a_queue_that_stays() -> None:
    way = WayBack()
    for second in range(1000):
        way.heard(second * 0.9999, float(second))
        assert way.queue(float(second)) < 0.02


def test_who_says_that_all_waits_on_the_way_back_makes_no_queue_that_grows() -> None:
    flight = Flight()
    now, total, limits = 0.0, 0, []
    for number in range(200):
        token = number.to_bytes(8, "big")
        total += flight.limit
        flight.pinged(token, total, now)
        flight.wrote(total, more=True, now=now)
        now += 0.02 + flight.limit / 1e6
        flight.way_back.heard(0.0, now)
        flight.answered(token, now)
        limits.append(flight.limit)
    assert max(limits[100:]) <= max(limits[:100]) < 600_000
