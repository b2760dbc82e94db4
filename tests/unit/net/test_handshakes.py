"""Counts of unfinished incoming connections."""

from swarm.net.address import Address
from swarm.net.handshakes import Handshakes

HERE, THERE, LOOPBACK = Address("192.0.2.1", 1), Address("192.0.2.2", 1), Address("127.0.0.1", 1)


def test_one_address_may_not_take_all_places() -> None:
    counts = Handshakes(limit=3, limit_per_address=2)
    first, second = counts.begin(HERE), counts.begin(HERE)
    assert counts.begin(HERE) is None
    assert counts.begin(THERE) is not None
    assert counts.begin(THERE) is None, "the total is the limit"
    assert first is not None
    assert second is not None
    first.finish()
    first.finish()
    assert len(counts) == 2
    assert counts.begin(HERE) is not None


def test_all_peers_of_one_machine_share_loopback() -> None:
    counts = Handshakes(limit=5, limit_per_address=2)
    assert all(counts.begin(LOOPBACK) for _ in range(5))
    assert counts.begin(LOOPBACK) is None


def test_nothing_is_remembered_of_those_that_are_finished() -> None:
    counts = Handshakes(limit=5, limit_per_address=2)
    for number in range(1000):
        handshake = counts.begin(Address(f"2001:db8:{number:x}::1", 1))
        assert handshake is not None
        handshake.finish()
    assert len(counts) == 0
    assert not counts._open
