from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from swarm.dht import storage as module
from swarm.dht.limits import MAX_KEYS, MAX_KEYS_PER_PUBLISHER, MAX_PUBLISHERS
from swarm.dht.proof import node_id
from swarm.dht.storage import RecordStorage, check_record
from swarm.dht.table import distance
from swarm.errors import LocalError, RemoteProtocolError
from swarm.identity.keys import PrivateKey
from swarm.ids import SwarmId, peer_id, swarm_id
from swarm.wire.records.peer import MAX_RECORD_LIFETIME, MAX_RECORD_SKEW, sign_record

NOW = 1_750_000_000.0
KEY = b"\x01" * 20
MakeRecord = Callable[..., bytes]


@pytest.fixture
def storage(swarm: SwarmId, make_key: Callable[[int], PrivateKey]) -> RecordStorage:
    return RecordStorage(node_id(make_key(1).public), swarm=swarm)


def sequences(storage: RecordStorage, now: float = NOW) -> list[int]:
    return [held.record.sequence for held in storage.read(KEY, now=now)]


def test_a_good_record_is_held_and_read_back(storage: RecordStorage, make_record: MakeRecord) -> None:
    data = make_record(2, wall=NOW)
    assert storage.offer(KEY, data, now=NOW) == int(NOW * 1000)
    [held] = storage.read(KEY, now=NOW)
    assert held.data == data
    assert storage.read(b"\x02" * 20, now=NOW) == []
    assert len(storage) == 1
    assert storage.stored_bytes == len(data)


def test_the_newest_sequence_wins_whatever_the_order(storage: RecordStorage, make_record: MakeRecord) -> None:
    old, new = make_record(2, wall=NOW, sequence=5 + int(NOW * 1000)), make_record(2, wall=NOW + 1)
    newest = int((NOW + 1) * 1000)
    assert storage.offer(KEY, old, now=NOW) == 5 + int(NOW * 1000)
    assert storage.offer(KEY, new, now=NOW) == newest
    assert storage.offer(KEY, old, now=NOW) == newest
    assert sequences(storage) == [newest]


def test_the_same_sequence_with_other_content_changes_nothing(
    storage: RecordStorage, make_record: MakeRecord
) -> None:
    first = make_record(2, wall=NOW)
    storage.offer(KEY, first, now=NOW)
    storage.offer(KEY, make_record(2, wall=NOW, role="bootstrap"), now=NOW)
    assert [held.data for held in storage.read(KEY, now=NOW)] == [first]


def test_publishers_stand_side_by_side_newest_first(storage: RecordStorage, make_record: MakeRecord) -> None:
    for number in (3, 5, 4):
        storage.offer(KEY, make_record(number, wall=NOW - 10 + number), now=NOW)
    assert sequences(storage) == [int((NOW - 10 + number) * 1000) for number in (5, 4, 3)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"expires": NOW}, "expired"),
        ({"sequence": int((NOW + MAX_RECORD_SKEW + 1) * 1000)}, "ahead"),
        ({"sequence": int((NOW - 7201) * 1000), "expires": NOW + 10}, "back"),
        ({"expires": NOW + MAX_RECORD_LIFETIME + MAX_RECORD_SKEW + 1}, "too long"),
        ({"swarm": swarm_id(b"\x01" * 32)}, "another swarm"),
    ],
)
def test_records_that_nobody_should_send_do_not_enter(
    storage: RecordStorage, make_record: MakeRecord, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=reason):
        storage.offer(KEY, make_record(2, wall=NOW, **changes), now=NOW)
    assert len(storage) == 0


def test_a_forged_record_does_not_enter(storage: RecordStorage, make_record: MakeRecord) -> None:
    good = make_record(2, wall=NOW)
    forged = make_record(3, wall=NOW)[:64] + good[64:]
    for data in (forged, good[:-1] + b"9", good[:100], b"", bytes(801)):
        with pytest.raises(RemoteProtocolError):
            storage.offer(KEY, data, now=NOW)
    assert len(storage) == 0


def test_a_known_record_costs_no_second_signature_check(
    storage: RecordStorage, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make_record(2, wall=NOW)
    storage.offer(KEY, data, now=NOW)
    checked: list[bytes] = []
    monkeypatch.setattr(module, "check_record", lambda data, **_: checked.append(data))
    assert storage.offer(KEY, data, now=NOW) == int(NOW * 1000)
    assert checked == []


def test_records_expire(storage: RecordStorage, make_record: MakeRecord) -> None:
    storage.offer(KEY, make_record(2, wall=NOW, expires=NOW + 10), now=NOW)
    assert storage.read(KEY, now=NOW + 10) == []
    storage.expire(NOW + 9)
    assert len(storage) == 1
    storage.expire(NOW + 10)
    assert len(storage) == storage.stored_bytes == 0
    assert storage.held_keys() == ()


def test_a_key_holds_64_publishers_and_evicts_the_one_that_expires_first(
    storage: RecordStorage, make_record: MakeRecord
) -> None:
    for number in range(2, MAX_PUBLISHERS + 2):
        storage.offer(KEY, make_record(number, wall=NOW, expires=NOW + 100 + number), now=NOW)
    assert storage.offer(KEY, make_record(900, wall=NOW, expires=NOW + 102), now=NOW) == 0
    assert storage.offer(KEY, make_record(901, wall=NOW, expires=NOW + 500), now=NOW) > 0
    expiries = sorted(held.record.expires - NOW for held in storage.read(KEY, now=NOW))
    assert expiries == [*range(103, MAX_PUBLISHERS + 102), 500]


def test_a_publisher_that_is_held_can_always_renew(storage: RecordStorage, make_record: MakeRecord) -> None:
    for number in range(2, MAX_PUBLISHERS + 2):
        storage.offer(KEY, make_record(number, wall=NOW, expires=NOW + 500), now=NOW)
    renewed = make_record(2, wall=NOW + 1, expires=NOW + 400)
    assert storage.offer(KEY, renewed, now=NOW + 1) == int((NOW + 1) * 1000)
    assert len(storage) == MAX_PUBLISHERS


def full_of_strangers(storage: RecordStorage, make_record: MakeRecord, source: str) -> None:
    for number in range(2, MAX_PUBLISHERS + 2):
        data = make_record(number, wall=NOW, expires=NOW + 7200)
        assert storage.offer(KEY, data, now=NOW, source=source) > 0


def test_many_keys_from_one_place_leave_room_for_those_from_others(
    storage: RecordStorage, make_record: MakeRecord
) -> None:
    full_of_strangers(storage, make_record, "192.0.2.0/24")
    for number in range(900, 900 + MAX_PUBLISHERS // 2):
        data = make_record(number, wall=NOW, expires=NOW + 10)
        assert storage.offer(KEY, data, now=NOW, source="198.51.100.0/24") > 0
    for number in range(1000, 1100):
        storage.offer(KEY, make_record(number, wall=NOW, expires=NOW + 7250), now=NOW, source="192.0.2.0/24")
    sources = Counter(held.source for held in storage.read(KEY, now=NOW))
    assert sources == {"192.0.2.0/24": MAX_PUBLISHERS // 2, "198.51.100.0/24": MAX_PUBLISHERS // 2}
    storage.check()


def test_a_peer_known_to_be_a_member_stays_before_strangers(
    swarm: SwarmId, make_key: Callable[[int], PrivateKey], make_record: MakeRecord
) -> None:
    members = {peer_id(make_key(number).public) for number in (900, 901)}
    storage = RecordStorage(node_id(make_key(1).public), swarm=swarm, known=members.__contains__)
    assert storage.offer(KEY, make_record(900, wall=NOW, expires=NOW + 5), now=NOW, source="here") > 0
    full_of_strangers_but_one = [make_record(n, wall=NOW, expires=NOW + 7200) for n in range(2, 200)]
    for data in full_of_strangers_but_one:
        storage.offer(KEY, data, now=NOW, source="here")
    assert storage.offer(KEY, make_record(901, wall=NOW, expires=NOW + 6), now=NOW, source="here") > 0
    held = {one.record.peer for one in storage.read(KEY, now=NOW)}
    assert members <= held
    assert len(held) == MAX_PUBLISHERS


def test_our_own_record_stays_beside_64_others(storage: RecordStorage, make_record: MakeRecord) -> None:
    own = make_record(1, wall=NOW, expires=NOW + 1)
    storage.keep_own(KEY, own, now=NOW)
    for number in range(2, MAX_PUBLISHERS + 12):
        storage.offer(KEY, make_record(number, wall=NOW), now=NOW)
    held = [one.data for one in storage.read(KEY, now=NOW)]
    assert own in held
    assert len(held) == MAX_PUBLISHERS + 1
    storage.check()


def test_one_publisher_has_few_keys(storage: RecordStorage, make_record: MakeRecord) -> None:
    data = make_record(2, wall=NOW)
    held = [storage.offer(bytes([number]) * 20, data, now=NOW) for number in range(20)]
    assert [sequence > 0 for sequence in held] == [True] * MAX_KEYS_PER_PUBLISHER + [False] * (
        20 - MAX_KEYS_PER_PUBLISHER
    )


def test_of_too_many_keys_the_nearest_stay(storage: RecordStorage, make_record: MakeRecord) -> None:
    own = storage._node
    storage.keep_own(KEY, make_record(1, wall=NOW), now=NOW)
    keys = [bytes([number >> 8, number & 255]) * 10 for number in range(MAX_KEYS + 20)]
    for number, key in enumerate(keys):
        storage.offer(key, make_record(2 + number, wall=NOW), now=NOW)
    storage.check()
    foreign = set(storage.held_keys()) - {KEY}
    assert foreign == set(sorted(keys, key=lambda key: distance(key, own))[: MAX_KEYS - 1])
    assert KEY in storage.held_keys()


def test_bytes_are_bounded_and_the_farthest_key_goes_first(
    storage: RecordStorage, make_record: MakeRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(make_record(2, wall=NOW))
    monkeypatch.setattr(module, "MAX_STORED_BYTES", 5 * size)
    keys = [bytes([number]) * 20 for number in range(10)]
    for number, key in enumerate(keys):
        storage.offer(key, make_record(2 + number, wall=NOW), now=NOW)
    assert storage.stored_bytes <= 5 * size
    storage.check()


def test_clearing_forgets_everything(storage: RecordStorage, make_record: MakeRecord) -> None:
    storage.keep_own(KEY, make_record(1, wall=NOW), now=NOW)
    storage.offer(KEY, make_record(2, wall=NOW), now=NOW)
    storage.clear()
    assert storage.read(KEY, now=NOW) == []
    assert len(storage) == storage.stored_bytes == 0


def test_check_finds_miscounted_bytes(storage: RecordStorage, make_record: MakeRecord) -> None:
    storage.offer(KEY, make_record(2, wall=NOW), now=NOW)
    storage._bytes += 1
    with pytest.raises(LocalError):
        storage.check()


KEYS = [PrivateKey.from_raw(bytes([number]) * 32) for number in range(6)]
SWARM = swarm_id(bytes(32))


class StorageMachine(RuleBasedStateMachine):
    """Against a model that remembers, for each key and publisher, the newest record offered while valid."""

    def __init__(self) -> None:
        super().__init__()
        self.storage = RecordStorage(node_id(KEYS[0].public), swarm=SWARM)
        self.now = NOW
        self.newest: dict[tuple[bytes, int], tuple[int, float]] = {}

    @rule(
        key=st.sampled_from([b"\1" * 20, b"\2" * 20]),
        publisher=st.integers(1, 5),
        age=st.floats(-30, 600),
        left=st.floats(-10, 3000),
    )
    def offer(self, key: bytes, publisher: int, age: float, left: float) -> None:
        sequence, expires = int((self.now - age) * 1000), self.now + left
        data = sign_record(
            KEYS[publisher], swarm=SWARM, sequence=sequence, expires=expires, role="peer", addresses=()
        )
        try:
            self.storage.offer(key, data, now=self.now)
        except RemoteProtocolError:
            assert expires <= self.now
            return
        held = self.newest.get((key, publisher))
        if held is None or held[1] <= self.now or sequence > held[0]:
            self.newest[key, publisher] = (sequence, expires)

    @rule(seconds=st.floats(0, 1000))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.storage.expire(self.now)

    @invariant()
    def holds_exactly_the_newest_live_ones(self) -> None:
        self.storage.check()
        for key in (b"\1" * 20, b"\2" * 20):
            held = {(h.publisher, h.record.sequence) for h in self.storage.read(key, now=self.now)}
            expected = {
                (node_id(KEYS[publisher].public), sequence)
                for (where, publisher), (sequence, expires) in self.newest.items()
                if where == key and expires > self.now
            }
            assert held == expected


TestStorageMachine = StorageMachine.TestCase
TestStorageMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)


def test_check_record_names_its_publisher(
    make_record: MakeRecord, make_key: Callable[[int], PrivateKey]
) -> None:
    held = check_record(make_record(7, wall=NOW), swarm=SWARM, now=NOW)
    assert held.publisher == node_id(make_key(7).public)
