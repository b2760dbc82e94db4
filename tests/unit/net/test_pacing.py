"""Caps: what is booked on one line of time, and what links make of that."""

import itertools

import pytest

from swarm.net.pacing import CATCH_UP_SECONDS, ON_THE_WIRE, Caps, Pace

RATE = 100_000.0


def test_turns_follow_each_other_whoever_books() -> None:
    pace = Pace(RATE)
    begins = [pace.book(10_000, 5.0) for _ in range(4)]
    gaps = [later - earlier for earlier, later in itertools.pairwise(begins)]
    assert begins[0] == 5.0 - CATCH_UP_SECONDS
    assert gaps == pytest.approx([10_000 * ON_THE_WIRE / RATE] * 3)


def test_idle_time_is_not_saved_up() -> None:
    pace = Pace(RATE)
    pace.book(10_000, 0.0)
    assert pace.book(10_000, 1000.0) == 1000.0 - CATCH_UP_SECONDS


def test_what_was_moved_counts_not_what_was_booked() -> None:
    pace, other = Pace(RATE), Pace(RATE)
    pace.book(10_000, 0.0)
    pace.settle(-4_000)
    other.book(6_000, 0.0)
    assert pace.passed(0, 0.0) == pytest.approx(other.passed(0, 0.0))


def test_nothing_asked_for_is_nothing_capped() -> None:
    assert Caps.of(up=0, down=0) == Caps()
    capped = Caps.of(up=5, down=7)
    assert capped.up is not None
    assert capped.down is not None
    assert (capped.up.rate, capped.down.rate) == (5, 7)
