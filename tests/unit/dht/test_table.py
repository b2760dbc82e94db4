import random
from collections.abc import Callable

import pytest

from swarm.dht.addresses import Address
from swarm.dht.limits import MAX_SILENCES, MAX_SILENCES_ALONE, K
from swarm.dht.table import Contact, Table, distance
from swarm.errors import LocalError
from swarm.testing.clock import ManualClock

OWN = bytes(20)


def ids(seed: int, count: int) -> list[bytes]:
    source = random.Random(seed)
    return [source.randbytes(20) for _ in range(count)]


@pytest.fixture
def table() -> Table:
    return Table(OWN, clock=ManualClock())


def test_distance_is_exclusive_or() -> None:
    assert distance(bytes(19) + b"\x05", bytes(19) + b"\x03") == 6
    assert distance(b"\x80" + bytes(19), OWN) == 2**159


@pytest.mark.parametrize("seed", range(10))
def test_closest_is_what_brute_force_finds(
    table: Table, make_contact: Callable[..., Contact], seed: int
) -> None:
    for node in ids(seed, 400):
        table.add_contact(make_contact(node))
    table.check()
    listed = [contact.id for contact in table.contacts()]
    for target in ids(seed + 100, 20) + listed[:5]:
        for k in (1, K, 3 * K):
            expected = sorted(listed, key=lambda node: distance(node, target))[:k]
            assert [contact.id for contact in table.closest(target, k)] == expected
        assert [one.id for one in table.by_distance(target)] == sorted(
            listed, key=lambda node: distance(node, target)
        )


def test_the_librarys_view_of_neighbours_is_exact_too(
    table: Table, make_contact: Callable[..., Contact]
) -> None:
    for node in ids(1, 300):
        table.add_contact(make_contact(node))
    target = table.contacts()[0]
    asker = table.contacts()[7]
    listed = [one.id for one in table.contacts() if one not in (target, asker)]
    expected = sorted(listed, key=lambda node: distance(node, target.id))[:K]
    assert [one.id for one in table.find_neighbors(target, exclude=asker)] == expected


def test_an_id_on_the_border_of_two_ranges_is_found_where_it_was_put(
    table: Table, make_contact: Callable[..., Contact]
) -> None:
    borders = [(2**159 - 1), 2**159, 2**158, 2**158 - 1, 2**160 - 1, 1]
    for number in borders:
        table.add_contact(make_contact(number.to_bytes(20, "big")))
    for node in ids(2, 200):
        table.add_contact(make_contact(node))
    table.check()
    for number in borders:
        node = number.to_bytes(20, "big")
        found = table.find(node)
        assert found is not None
        assert found.id == node
        table.remove_contact(found)
        assert table.find(node) is None
    table.check()


def test_a_bucket_far_from_us_splits_by_depth_whatever_its_members_share(
    table: Table, make_contact: Callable[..., Contact]
) -> None:
    """Ids that share 3 bits: the library sees depth 3 and splits, until the depth they share is 5."""
    shared = [bytes([0b10100000 | byte >> 5]) + bytes(18) + bytes([byte]) for byte in range(60)]
    for node in shared:
        table.add_contact(make_contact(node))
    table.check()
    assert max(len(bucket) for bucket in table.buckets) == K
    depths = {160 - (high - low).bit_length() for low, high in (bucket.range for bucket in table.buckets)}
    assert max(depths) <= 5


def test_full_buckets_keep_the_old_and_queue_the_new(
    table: Table, make_contact: Callable[..., Contact]
) -> None:
    far = [b"\xff" + bytes(18) + bytes([byte]) for byte in range(K + 5)]
    for node in far:
        table.add_contact(make_contact(node))
    assert {contact.id for contact in table.contacts()} == set(far[:K])
    first = table.find(far[0])
    assert first is not None
    table.remove_contact(first)
    assert {contact.id for contact in table.contacts()} == {*far[1:K], far[-1]}
    table.check()


def test_a_silent_contact_makes_room_for_a_newcomer(
    table: Table, make_contact: Callable[..., Contact]
) -> None:
    far = [make_contact(b"\xff" + bytes(18) + bytes([byte])) for byte in range(K)]
    for contact in far:
        table.add_contact(contact)
    far[4].silences = 1
    newcomer = make_contact(b"\xff" + bytes(18) + b"\xff")
    table.add_contact(newcomer)
    assert newcomer in table.contacts()
    assert far[4] not in table.contacts()
    table.check()


def test_one_silence_costs_nothing_and_a_second_one_the_place(
    table: Table, make_contact: Callable[..., Contact]
) -> None:
    contact = make_contact(b"\x01" * 20)
    table.add_contact(contact)
    for _ in range(MAX_SILENCES - 1):
        table.silent(contact, others_heard=True)
    assert contact in table.contacts()
    table.silent(contact, others_heard=True)
    assert contact not in table.contacts()


def test_while_nobody_is_heard_contacts_are_given_longer(
    table: Table, make_contact: Callable[..., Contact]
) -> None:
    contact = make_contact(b"\x01" * 20)
    table.add_contact(contact)
    for _ in range(MAX_SILENCES_ALONE - 1):
        table.silent(contact, others_heard=False)
    assert contact in table.contacts()
    table.silent(contact, others_heard=False)
    assert contact not in table.contacts()


def test_buckets_are_lonely_an_hour_after_their_last_lookup(make_contact: Callable[..., Contact]) -> None:
    clock = ManualClock()
    table = Table(OWN, clock=clock)
    for node in ids(3, 100):
        table.add_contact(make_contact(node))
    assert table.lonely_buckets() == []
    clock.advance(3601)
    assert table.lonely_buckets() == table.buckets
    table.looked_up(b"\xff" * 20)
    assert [bucket.has_in_range(make_contact(b"\xff" * 20)) for bucket in table.lonely_buckets()] == (
        [False] * (len(table.buckets) - 1)
    )


def test_halves_of_a_bucket_keep_the_time_of_its_last_lookup(make_contact: Callable[..., Contact]) -> None:
    clock = ManualClock()
    table = Table(OWN, clock=clock)
    clock.advance(3000)
    for node in ids(4, 100):
        table.add_contact(make_contact(node))
    clock.advance(601)
    assert len(table.lonely_buckets()) == len(table.buckets) > 1


def test_a_contact_that_comes_again_moves_to_the_end(
    table: Table, make_contact: Callable[..., Contact]
) -> None:
    one, other = make_contact(b"\x01" * 20), make_contact(b"\x02" * 20)
    table.add_contact(one)
    table.add_contact(other)
    table.add_contact(one)
    assert table.contacts() == [other, one]


def test_random_churn_keeps_the_table_sound(table: Table, make_contact: Callable[..., Contact]) -> None:
    source = random.Random(5)
    known = [make_contact(node) for node in ids(6, 500)]
    for _ in range(3000):
        contact = source.choice(known)
        match source.randrange(4):
            case 0:
                table.remove_contact(contact)
            case 1:
                table.silent(contact, others_heard=source.random() < 0.5)
            case _:
                contact.silences = 0
                table.add_contact(contact)
    table.check()
    assert len({contact.id for contact in table.contacts()}) == len(table.contacts()) > 100


def test_check_finds_a_contact_in_the_wrong_bucket(
    table: Table, make_contact: Callable[..., Contact]
) -> None:
    for node in ids(7, 100):
        table.add_contact(make_contact(node))
    far = make_contact(b"\xff" * 20)
    table.buckets[0].nodes[far.id] = far
    with pytest.raises(LocalError, match="broken"):
        table.check()


def test_a_contact_is_named_by_its_peer_id(make_contact: Callable[..., Contact]) -> None:
    contact = make_contact(bytes(20))
    assert contact.peer == "a" * 32
    assert contact.address == Address.of("10.1.0.1", 7423)
