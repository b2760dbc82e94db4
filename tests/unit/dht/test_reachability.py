import pytest

from swarm.dht.addresses import Address
from swarm.dht.limits import MAX_SENT_TO, REACHED_SECONDS
from swarm.dht.reachability import Reachability
from swarm.testing.clock import ManualClock

STRANGER = Address.of("198.51.100.7", 7423)
OTHER_PORT = Address.of("198.51.100.7", 40_000)
NEIGHBOUR = Address.of("192.168.1.5", 7423)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reachability(clock: ManualClock) -> Reachability:
    return Reachability("reachable", clock=clock)


def test_who_knows_nothing_stores_for_the_local_network_alone(reachability: Reachability) -> None:
    assert reachability.stores_for(NEIGHBOUR)
    assert not reachability.stores_for(STRANGER)
    assert reachability.wants_proof


def test_an_answer_shows_nothing(reachability: Reachability) -> None:
    reachability.sent(STRANGER)
    reachability.heard(STRANGER)
    assert not reachability.stores_for(STRANGER)


def test_a_stranger_shows_it_until_half_an_hour_has_passed(
    reachability: Reachability, clock: ManualClock
) -> None:
    reachability.sent(STRANGER)
    reachability.heard(OTHER_PORT)
    assert reachability.stores_for(STRANGER)
    assert not reachability.wants_proof
    clock.advance(REACHED_SECONDS / 2 + 1)
    assert reachability.stores_for(STRANGER)
    assert reachability.wants_proof
    clock.advance(REACHED_SECONDS / 2)
    assert not reachability.stores_for(STRANGER)


def test_a_neighbour_shows_nothing_of_the_internet(reachability: Reachability) -> None:
    reachability.heard(NEIGHBOUR)
    assert not reachability.stores_for(STRANGER)


def test_who_was_sent_to_is_remembered_up_to_a_bound(reachability: Reachability) -> None:
    for number in range(MAX_SENT_TO + 1):
        reachability.sent(Address.of(f"26.{number >> 8}.{number & 255}.1", 7423))
    reachability.heard(Address.of("26.0.1.1", 7423))
    assert not reachability.is_reached
    reachability.heard(Address.of("26.0.0.1", 7423))
    assert reachability.is_reached


def test_a_bootstrap_node_always_stores_and_an_author_never(clock: ManualClock) -> None:
    always, never = (Reachability(storing, clock=clock) for storing in ("always", "never"))
    never.heard(STRANGER)
    for address in (STRANGER, NEIGHBOUR):
        assert always.stores_for(address)
        assert not never.stores_for(address)
    assert not always.wants_proof
    assert not never.wants_proof
