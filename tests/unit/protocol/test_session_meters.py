"""Rates, round trips and heartbeats by the numbers."""

import pytest

from swarm.protocol.session_meters import (
    MAX_UNSENT_BYTES,
    RATE_BURST_BYTES,
    UNMEASURED_FRAME_BYTES,
    Liveness,
    RateMeter,
)
from swarm.wire.limits import KIB, MAX_DATA_FRAME_BYTES, MIN_DATA_FRAME_BYTES


def test_a_rate_is_what_passed_in_a_busy_span() -> None:
    meter = RateMeter()
    meter.observe(1000, busy=True, now=10.0)
    meter.observe(101_000, busy=True, now=10.1)
    assert meter.rate == pytest.approx(1e6)


def test_idle_time_is_not_counted() -> None:
    meter = RateMeter()
    meter.observe(0, busy=True, now=0.0)
    meter.observe(100_000, busy=False, now=0.1)
    meter.observe(100_000, busy=True, now=1000.0)
    meter.observe(200_000, busy=False, now=1000.1)
    assert meter.rate == pytest.approx(1e6)


def test_spans_too_short_to_tell_are_not_counted() -> None:
    meter = RateMeter()
    meter.observe(0, busy=True, now=0.0)
    meter.observe(RATE_BURST_BYTES - 1, busy=False, now=0.001)
    assert meter.rate == 0.0
    meter.observe(RATE_BURST_BYTES, busy=True, now=1.0)
    meter.observe(2 * RATE_BURST_BYTES, busy=False, now=1.001)
    assert meter.rate == pytest.approx(RATE_BURST_BYTES / 0.001)


def test_a_rate_follows_its_samples_slowly() -> None:
    meter = RateMeter()
    meter.observe(0, busy=True, now=0.0)
    meter.observe(100_000, busy=True, now=0.1)
    meter.observe(300_000, busy=True, now=0.2)
    assert meter.rate == pytest.approx(1e6 + 0.3 * 1e6)


@pytest.mark.parametrize(
    ("rate", "frame", "unsent"),
    [
        (1e3, MIN_DATA_FRAME_BYTES, MIN_DATA_FRAME_BYTES),
        (1e6, 32 * KIB, 16 * KIB),
        (2e6, 64 * KIB, 32 * KIB),
        (1e7, MAX_DATA_FRAME_BYTES, 128 * KIB),
        (1e10, MAX_DATA_FRAME_BYTES, MAX_UNSENT_BYTES),
    ],
)
def test_frames_take_fifty_milliseconds_and_buffers_twentyfive(rate: float, frame: int, unsent: int) -> None:
    meter = RateMeter()
    assert meter.frame_bytes == UNMEASURED_FRAME_BYTES
    meter.observe(0, busy=True, now=0.0)
    meter.observe(int(rate), busy=True, now=1.0)
    assert (meter.frame_bytes, meter.unsent_bytes) == (frame, unsent)


def test_round_trips_are_smoothed_as_in_rfc_6298() -> None:
    liveness = Liveness(heartbeat=3.0, now=0.0)
    token = liveness.ping(0.0)
    liveness.pong(token, 0.1)
    assert liveness.rtt == pytest.approx(0.1)
    assert liveness.interval == 3.0
    token = liveness.ping(1.0)
    liveness.pong(token, 1.9)
    assert liveness.rtt == pytest.approx(0.1 + 0.8 / 8)
    variation = 0.05 + (0.8 - 0.05) / 4
    assert liveness.interval == pytest.approx(max(3.0, 2 * 0.2 + 4 * variation))


def test_an_answer_counts_once_and_only_to_what_was_asked() -> None:
    liveness = Liveness(heartbeat=3.0, now=0.0)
    liveness.probe()
    token = liveness.ping(0.0)
    assert liveness.awaits(token)
    assert not liveness.awaits(b"nonsense")
    assert liveness.pong(token, 0.1)
    assert not liveness.awaits(token)
    assert not liveness.pong(liveness.ping(1.0), 1.1), "nobody had probed"


def test_pings_that_are_never_answered_are_not_kept() -> None:
    liveness = Liveness(heartbeat=3.0, now=0.0)
    for second in range(1000):
        liveness.ping(float(second))
    assert len(liveness._sent) < 10
