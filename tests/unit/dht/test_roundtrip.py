import pytest

from swarm.dht.limits import FIRST_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS, MIN_TIMEOUT_SECONDS
from swarm.dht.roundtrip import RoundTrip


def test_before_any_sample_the_first_timeout_holds() -> None:
    assert RoundTrip().timeout == RoundTrip().patience == FIRST_TIMEOUT_SECONDS
    assert RoundTrip().smoothed is None


def test_samples_count_as_in_rfc_6298() -> None:
    trip = RoundTrip()
    trip.sample(0.2)
    assert trip.smoothed == 0.2
    assert trip.timeout == pytest.approx(0.2 + 4 * 0.1)
    trip.sample(0.3)
    variation = 0.75 * 0.1 + 0.25 * 0.1
    smoothed = 0.875 * 0.2 + 0.125 * 0.3
    assert trip.smoothed == pytest.approx(smoothed)
    assert trip.timeout == pytest.approx(smoothed + 4 * variation)


@pytest.mark.parametrize(("seconds", "timeout"), [(0.001, MIN_TIMEOUT_SECONDS), (9.0, MAX_TIMEOUT_SECONDS)])
def test_the_timeout_stays_within_its_bounds(seconds: float, timeout: float) -> None:
    trip = RoundTrip()
    trip.sample(seconds)
    assert trip.timeout == timeout


def test_patience_ends_before_the_timeout_where_answers_are_quick() -> None:
    trip = RoundTrip()
    for _ in range(20):
        trip.sample(0.02)
    assert trip.patience == pytest.approx(0.05, abs=0.01)
    assert trip.timeout == MIN_TIMEOUT_SECONDS
