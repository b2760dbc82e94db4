import pytest

from swarm.clock import Clock
from swarm.testing.clock import ManualClock


def test_it_stands_still_until_it_is_moved() -> None:
    clock: Clock = ManualClock(elapsed=3.0, wall=100.0)
    assert (clock.elapsed(), clock.wall()) == (3.0, 100.0)
    assert (clock.elapsed(), clock.wall()) == (3.0, 100.0)


def test_time_passes_on_both_clocks() -> None:
    clock = ManualClock(wall=100.0)
    clock.advance(2.5)
    assert (clock.elapsed(), clock.wall()) == (2.5, 102.5)


def test_the_date_can_be_set_back_but_time_does_not_run_backwards() -> None:
    clock = ManualClock(wall=100.0)
    clock.set_wall(50.0)
    assert (clock.elapsed(), clock.wall()) == (0.0, 50.0)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
