"""Counts of unfinished incoming connections, and who has to go when there are too many."""

from dataclasses import dataclass

from swarm.net.address import Address
from swarm.net.handshakes import GRACE_SECONDS, Handshakes

HERE, THERE, LOOPBACK = Address("192.0.2.1", 1), Address("192.0.2.2", 1), Address("127.0.0.1", 1)


@dataclass
class Caller:
    remote: Address
    heard: bool = True
    aborted: bool = False

    def abort(self) -> None:
        self.aborted = True


def test_one_address_may_not_take_all_places() -> None:
    counts = Handshakes(limit=3, limit_per_address=2)
    first, second = (counts.begin(Caller(HERE), now=0.0) for _ in range(2))
    assert counts.begin(Caller(HERE), now=0.0) is None
    assert counts.begin(Caller(THERE), now=0.0) is not None
    assert counts.begin(Caller(THERE), now=0.0) is None, "the total is the limit"
    assert first is not None
    assert second is not None
    first.finish()
    first.finish()
    assert len(counts) == 2
    assert counts.begin(Caller(HERE), now=0.0) is not None


def test_all_peers_of_one_machine_share_loopback() -> None:
    counts = Handshakes(limit=5, limit_per_address=2)
    assert all(counts.begin(Caller(LOOPBACK), now=0.0) for _ in range(5))
    assert counts.begin(Caller(LOOPBACK), now=0.0) is None


def test_nothing_is_remembered_of_those_that_are_finished() -> None:
    counts = Handshakes(limit=5, limit_per_address=2)
    for number in range(1000):
        handshake = counts.begin(Caller(Address(f"2001:db8:{number:x}::1", 1)), now=0.0)
        assert handshake is not None
        handshake.finish()
    assert len(counts) == 0
    assert not counts._open


def test_the_one_that_was_silent_for_longest_makes_room() -> None:
    counts = Handshakes(limit=4, limit_per_address=4)
    talker, silent, later = Caller(HERE), Caller(HERE, heard=False), Caller(THERE, heard=False)
    for moment, caller in enumerate((talker, silent, later, Caller(THERE))):
        assert counts.begin(caller, now=float(moment)) is not None
    assert counts.begin(Caller(THERE), now=4.0) is not None
    assert (talker.aborted, silent.aborted, later.aborted) == (False, True, False)
    assert len(counts) == 4


def test_a_crowded_address_makes_room_for_its_own() -> None:
    counts = Handshakes(limit=10, limit_per_address=2)
    elsewhere, silent = Caller(THERE, heard=False), Caller(HERE, heard=False)
    for caller in (elsewhere, silent, Caller(HERE)):
        assert counts.begin(caller, now=0.0) is not None
    assert counts.begin(Caller(HERE), now=0.0) is not None
    assert silent.aborted
    assert not elsewhere.aborted


def test_who_talks_without_end_keeps_its_place_for_a_while() -> None:
    counts = Handshakes(limit=2, limit_per_address=2)
    slow, quick = Caller(HERE), Caller(HERE)
    assert counts.begin(slow, now=0.0) is not None
    assert counts.begin(quick, now=1.0) is not None
    assert counts.begin(Caller(HERE), now=GRACE_SECONDS) is None
    assert counts.begin(Caller(HERE), now=GRACE_SECONDS + 0.1) is not None
    assert slow.aborted
    assert not quick.aborted


def test_talkers_from_some_addresses_do_not_shut_out_another() -> None:
    counts = Handshakes(limit=6, limit_per_address=3)
    crowd = [Caller(address) for address in (HERE, THERE) for _ in range(3)]
    assert all(counts.begin(caller, now=0.0) for caller in crowd)
    elsewhere = Address("198.51.100.1", 1)
    assert counts.begin(Caller(elsewhere), now=0.1) is not None
    assert counts.begin(Caller(elsewhere), now=0.1) is not None
    assert [caller.aborted for caller in crowd] == [False, False, True, False, False, True]
    assert counts.begin(Caller(elsewhere), now=0.1) is None, "no address gets more than the others"
    assert len(counts) == 6
