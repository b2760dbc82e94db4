import pytest

from swarm.data.ledger import Ledger
from swarm.errors import FailureError, LocalError
from swarm.ids import Digest

A, B, C = Digest("a" * 52), Digest("b" * 52), Digest("c" * 52)


def test_the_least_recently_used_blocks_go_first():
    ledger = Ledger(10)
    for name in (A, B, C):
        ledger.add(name, 3)
    ledger.touch(A)
    assert ledger.victims(2) == [B]
    assert ledger.victims(6) == [B, C]
    assert ledger.victims(1) == []


def test_reserved_room_counts_as_used():
    ledger = Ledger(10)
    ledger.add(A, 4)
    ledger.reserve(6)
    assert ledger.victims(0) == []
    assert ledger.victims(1) == [A]
    with pytest.raises(FailureError):
        ledger.victims(5)
    ledger.release(6)
    assert ledger.victims(6) == []


def test_pins_count_by_owner_and_may_come_before_the_block():
    ledger = Ledger(10)
    ledger.pin("job", [A, A])
    ledger.pin("other", [A])
    ledger.add(A, 10)
    ledger.unpin("job")
    assert ledger.pinned(A)
    with pytest.raises(FailureError, match="--disk"):
        ledger.victims(1)
    ledger.unpin("other")
    ledger.unpin("nobody")
    assert ledger.victims(1) == [A]
    ledger.check()


def test_adding_twice_counts_once():
    ledger = Ledger(10)
    ledger.add(A, 4)
    ledger.add(A, 4)
    assert (ledger.size, len(ledger)) == (4, 1)
    ledger.remove(A)
    ledger.remove(A)
    assert (ledger.size, ledger.length(A)) == (0, None)


def test_the_sentence_says_how_much_does_not_fit_beside_what():
    ledger = Ledger(3 << 20)
    ledger.add(A, 1 << 20)
    ledger.add(B, 1 << 20)
    ledger.pin("job", [B])
    with pytest.raises(FailureError) as caught:
        ledger.victims(5 << 19)
    assert str(caught.value) == (
        "the block store is full: 2.5 MiB more do not fit beside the 1.0 MiB in use, "
        "its limit is 3.0 MiB: give it more with --disk"
    )


def test_check_finds_accounts_that_do_not_add_up():
    ledger = Ledger(10)
    ledger.release(1)
    with pytest.raises(LocalError):
        ledger.check()
