import pytest

from swarm.dht.addresses import Address
from swarm.dht.limits import ADDRESS_BURST, ADDRESS_RATE, MAX_SOURCES, PREFIX_BURST
from swarm.dht.rates import Buckets, Rates
from swarm.testing.clock import ManualClock


def accepted(rates: Rates, host: str, requests: int, port: int = 1) -> int:
    return sum(rates.take(Address.of(host, port)) for _ in range(requests))


def test_an_address_has_its_burst_and_then_its_rate() -> None:
    clock = ManualClock()
    rates = Rates(clock)
    assert accepted(rates, "192.0.2.1", 1000) == ADDRESS_BURST
    clock.advance(2.0)
    assert accepted(rates, "192.0.2.1", 1000) == 2 * ADDRESS_RATE
    clock.advance(3600.0)
    assert accepted(rates, "192.0.2.1", 1000) == ADDRESS_BURST


def test_one_address_takes_nothing_from_others() -> None:
    rates = Rates(ManualClock())
    accepted(rates, "192.0.2.1", 100_000)
    assert accepted(rates, "192.0.2.2", 100) == 100
    assert accepted(rates, "198.51.100.1", 100) == 100


@pytest.mark.parametrize(
    ("one", "other"), [("192.0.2.{}", "198.51.100.1"), ("2001:db8::{}", "2001:db8:1::1")]
)
def test_all_addresses_of_a_prefix_share_one_bucket(one: str, other: str) -> None:
    rates = Rates(ManualClock())
    assert sum(accepted(rates, one.format(number), 100) for number in range(1, 200)) == PREFIX_BURST
    assert accepted(rates, other, 100) == 100


def test_counted_sources_are_bounded() -> None:
    buckets = Buckets(ManualClock(), rate=1.0, burst=1.0)
    assert all(buckets.take(str(number)) for number in range(MAX_SOURCES + 100))
    assert len(buckets) == MAX_SOURCES
    assert not buckets.take(str(MAX_SOURCES + 99))


def test_what_is_asked_too_often_still_comes_at_its_rate() -> None:
    clock = ManualClock()
    buckets = Buckets(clock, rate=1.0, burst=1.0)
    taken = 0
    for _ in range(100):
        clock.advance(0.25)
        taken += buckets.take("busy")
    assert taken in {25, 26}
