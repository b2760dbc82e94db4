"""How much a link has under way, on simulated paths with a queue without end."""

from collections import deque
from dataclasses import dataclass, field

import pytest

from swarm.protocol.session_events import Post
from swarm.protocol.session_flight import (
    BEGINNING_BYTES,
    LEAST_BYTES,
    PINGS,
    Flight,
)
from swarm.testing.sessions import SessionPair
from swarm.wire.frames import Kind, decode_header
from swarm.wire.limits import MIN_DATA_FRAME_BYTES
from swarm.wire.messages.blocks import BlockReply

FRAME = MIN_DATA_FRAME_BYTES
STEP = 0.001


@dataclass
class Path:
    """Bulk without end through a hop of ``rate`` bytes a second, beside ``others`` seconds of other queue."""

    rate: float
    round_trip: float
    others: float = 0.0
    flight: Flight = field(default_factory=Flight)
    now: float = 0.0
    total: int = 0
    free_at: float = 0.0
    pings: int = 0
    arrivals: deque[tuple[float, int]] = field(default_factory=deque)
    pongs: deque[tuple[float, bytes]] = field(default_factory=deque)
    arrived: int = 0

    def run(self, seconds: float, *, busy: bool = True) -> float:
        """Bytes a second that arrive meanwhile."""
        end, before = self.now + seconds, self.arrived
        if not busy:
            self.flight.wrote(self.total, more=False, now=self.now)
        while self.now < end:
            while self.pongs and self.pongs[0][0] <= self.now:
                self.flight.answered(self.pongs.popleft()[1], self.now)
            while self.arrivals and self.arrivals[0][0] <= self.now:
                self.arrived += self.arrivals.popleft()[1]
            if busy and self.flight.is_stuck(self.total):
                self.ping()
            while busy and self.flight.has_room(self.total) and self.now >= self.flight.bulk_at:
                if self.flight.is_ping_due(self.total):
                    self.ping()
                self.total += FRAME
                self.free_at = max(self.free_at, self.now) + FRAME / self.rate
                self.arrivals.append((self.free_at + self.others, FRAME))
                self.flight.wrote(self.total, more=True, now=self.now)
            self.now += STEP
        return (self.arrived - before) / seconds

    def ping(self) -> None:
        self.pings += 1
        token = self.pings.to_bytes(8, "big")
        self.flight.pinged(token, self.total, self.now)
        back = max(self.free_at, self.now) + self.others + self.round_trip
        self.pongs.append((max(back, self.pongs[-1][0] if self.pongs else 0.0), token))
        assert len(self.pongs) <= PINGS

    @property
    def queue(self) -> float:
        """Seconds that whatever is written now waits behind what this link wrote."""
        return max(self.free_at - self.now, 0.0)


def longest(round_trip: float) -> float:
    """Queue that leaves control beside bulk within three idle round trips and 0.1 s (DESIGN section 6)."""
    return 2 * round_trip + 0.1


@pytest.mark.parametrize("rate", [1e6, 12.5e6, 125e6])
@pytest.mark.parametrize("round_trip", [0.0005, 0.02, 0.2])
def test_a_path_is_filled_and_its_queue_stays_short(rate: float, round_trip: float) -> None:
    path = Path(rate=rate, round_trip=round_trip)
    path.run(4.0)
    queues = []
    before = path.arrived
    for _ in range(1000):
        path.run(0.01)
        queues.append(path.queue)
    assert path.arrived - before > 0.98 * rate * 10.0
    assert max(queues) < longest(round_trip)


def test_a_fast_path_is_filled_within_a_second() -> None:
    path = Path(rate=125e6, round_trip=0.02)
    path.run(1.0)
    assert path.run(1.0) > 0.97 * 125e6


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_another_rate_is_found(factor: float) -> None:
    path = Path(rate=5e6, round_trip=0.04)
    path.run(3.0)
    path.rate *= factor
    path.run(3.0)
    assert path.run(2.0) > 0.97 * path.rate
    assert path.queue < longest(0.04)


def test_who_shares_a_full_queue_with_others_does_not_starve() -> None:
    path = Path(rate=1e6, round_trip=0.02)
    path.run(3.0)
    path.others = 1.0
    path.run(20.0)
    assert path.run(30.0) > 0.75 * path.rate
    path.others = 0.0
    path.run(60.0)
    assert path.queue < longest(0.02), "and later it is as before"


def test_rest_says_nothing_about_the_rate() -> None:
    path = Path(rate=12.5e6, round_trip=0.02)
    path.run(3.0)
    limit = path.flight.limit
    for _ in range(30):
        path.run(1.0, busy=False)
        path.run(0.002)
    assert path.flight.limit > limit / 2


def test_bulk_waits_until_what_is_under_way_has_arrived() -> None:
    flight = Flight()
    assert flight.is_ping_due(0)
    flight.pinged(b"1", 0, 0.0)
    assert flight.has_room(BEGINNING_BYTES - 1)
    assert not flight.has_room(BEGINNING_BYTES)
    assert not flight.is_stuck(BEGINNING_BYTES), "an answer is still to come"
    flight.answered(b"another", 0.1)
    assert not flight.is_stuck(BEGINNING_BYTES)
    flight.answered(b"1", 0.1)
    assert flight.is_stuck(BEGINNING_BYTES)
    flight.pinged(b"2", BEGINNING_BYTES, 0.1)
    flight.answered(b"2", 0.2)
    assert flight.has_room(BEGINNING_BYTES)


def test_an_answer_stands_for_all_before_it() -> None:
    flight = Flight()
    for number in range(1, PINGS + 1):
        flight.pinged(bytes([number]), number * 1000, 0.0)
    assert not flight.is_ping_due(2**40), "no more pings than the other side has to take"
    flight.answered(bytes([PINGS]), 1.0)
    assert flight.has_room(PINGS * 1000 + LEAST_BYTES - 1)
    flight.answered(bytes([1]), 1.0)
    assert flight.is_ping_due(PINGS * 1000)


def kinds(data: bytes) -> list[Kind]:
    found = []
    while data:
        header = decode_header(data[:12])
        found.append(header.kind)
        data = data[12 + header.length :]
    return found


def test_a_session_sends_a_flight_and_goes_on_when_some_of_it_has_arrived() -> None:
    pair = SessionPair()
    pair.rise(0.0)
    payload = bytes(2 * BEGINNING_BYTES)
    pair.near.feed(Post(1, BlockReply(request=1), memoryview(payload)), 1.0)
    assert kinds(pair.near.write(1.0)) == [Kind.PING, Kind.OPEN, Kind.DATA]
    pair.near.write_all(1.0)
    sent = pair.near.session.statistics().payload_sent
    assert BEGINNING_BYTES - MIN_DATA_FRAME_BYTES < sent <= BEGINNING_BYTES + MIN_DATA_FRAME_BYTES
    assert not pair.near.session.wants_to_write
    pair.far.receive(pair.near.wire, 1.1)
    pair.near.wire.clear()
    answers = pair.far.write(1.1)
    assert set(kinds(answers)) == {Kind.PONG}
    pair.near.receive(answers, 1.2)
    assert pair.near.session.wants_to_write
    pair.carry(1.3)
    assert pair.near.session.statistics().payload_sent == len(payload)
    assert pair.near.session.statistics().sending == 0
