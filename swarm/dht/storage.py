"""Records that this node holds: merged by publisher, dated, signed, and bounded.

One record a publisher and key, the one with the highest sequence. What comes in is checked in full before
it counts, whoever hands it over; a record can be delayed but neither made, changed nor undone by others.
Keys cost nothing, so records under many of them must not displace those of peers that are there: who is known
to be a member stays before who is not, and strangers share what is left by the address that handed their
records over. Beyond that, what has to go is what would go first anyway: under one key the record that expires
first, among keys the one farthest from this node, which others are nearer to.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from swarm.dht.limits import MAX_KEYS, MAX_KEYS_PER_PUBLISHER, MAX_PUBLISHERS, MAX_STORED_BYTES
from swarm.dht.proof import node_id
from swarm.dht.table import distance
from swarm.errors import LocalError, RemoteProtocolError
from swarm.ids import PeerId, SwarmId, base32
from swarm.wire.records.peer import PeerRecord, check_dates, check_signature, parse_record


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A checked record, its bytes, and its publisher's node id."""

    record: PeerRecord
    data: bytes
    publisher: bytes
    peer: PeerId
    source: str
    """Where it was handed over from."""

    @property
    def rank(self) -> tuple[int, bytes]:
        """Sorts the newest first."""
        return (-self.record.sequence, self.publisher)


def check_record(data: bytes, *, swarm: SwarmId, now: float, source: str = "") -> Held:
    """The record in ``data``, valid at ``now`` (wall time) in ``swarm``; raises RemoteProtocolError.

    The signature, which costs most, is checked last.
    """
    record = parse_record(data)
    if record.swarm != swarm:
        raise RemoteProtocolError("a peer record belongs to another swarm")
    check_dates(record, now=now)
    check_signature(record, data)
    publisher = node_id(record.public_key)
    return Held(record=record, data=data, publisher=publisher, peer=PeerId(base32(publisher)), source=source)


def _by_expiry(held: Held) -> tuple[float, tuple[int, bytes]]:
    return held.record.expires, held.rank


def _earlier(candidates: list[Held], held: Held) -> Held | None:
    """The one of ``candidates`` that expires first, where that is before ``held``."""
    first = min(candidates, key=_by_expiry)
    return first if first.record.expires < held.record.expires else None


class RecordStorage:
    """The records of one node. ``node`` is its id, whose own records stay until they are replaced.

    ``known`` says of a peer whether it has been seen to be a member, ``belongs`` whether under a key (the
    first) a publisher may have its record.
    """

    def __init__(
        self,
        node: bytes,
        *,
        swarm: SwarmId,
        known: Callable[[PeerId], bool] = lambda _: False,
        belongs: Callable[[bytes, bytes], bool] = lambda _key, _publisher: True,
    ) -> None:
        self._belongs: Final = belongs
        self._is_known: Final = known
        self._node: Final = node
        self._swarm: Final = swarm
        self._keys: dict[bytes, dict[bytes, Held]] = {}
        self._bytes = 0

    def offer(self, key: bytes, data: bytes, *, now: float, source: str = "") -> int:
        """Take the record in ``data`` if it is good, new and finds room; ``source`` hands it over.

        Returns the sequence that is held for its publisher afterwards, 0 for none. Raises
        RemoteProtocolError for a record that nobody should have sent.
        """
        self._expire(key, now)
        record = parse_record(data)
        publisher = node_id(record.public_key)
        if not self._belongs(key, publisher):
            raise RemoteProtocolError("a record lies under a key that is not its publisher's")
        current = self._keys.get(key, {}).get(publisher)
        if current is not None and current.data == data:
            return current.record.sequence
        held = check_record(data, swarm=self._swarm, now=now, source=source)
        if current is not None and current.record.sequence >= held.record.sequence:
            return current.record.sequence
        if current is None and not self._make_room(key, held):
            return 0
        self._put(key, held)
        while self._bytes > MAX_STORED_BYTES and self._drop_farthest(key):
            pass
        return held.record.sequence

    def keep_own(self, key: bytes, data: bytes, *, now: float) -> None:
        """Hold our own record, whatever the limits: a lone node still knows what it published."""
        self._put(key, check_record(data, swarm=self._swarm, now=now))

    def _make_room(self, key: bytes, held: Held) -> bool:
        """Whether there is room for a new publisher under ``key``, made where it has to be."""
        if sum(held.publisher in records for records in self._keys.values()) >= MAX_KEYS_PER_PUBLISHER:
            return False
        if key not in self._keys and len(self._keys) >= MAX_KEYS:
            farthest = self._farthest()
            if farthest is None or distance(key, self._node) >= distance(farthest, self._node):
                return False
            self._drop_key(farthest)
        others = [kept for kept in self._keys.get(key, {}).values() if kept.publisher != self._node]
        if len(others) < MAX_PUBLISHERS:
            return True
        victim = self._victim(others, held)
        if victim is None:
            return False
        self._remove(key, victim.publisher)
        return True

    def _victim(self, others: list[Held], held: Held) -> Held | None:
        """Which of ``others`` makes room for ``held``; None where all of them stay."""
        strangers = [kept for kept in others if not self._is_known(kept.peer)]
        welcome = self._is_known(held.peer)
        if not strangers:
            return _earlier(others, held) if welcome else None
        crowds = Counter(kept.source for kept in strangers)
        largest = max(crowds.values())
        if welcome or crowds[held.source] < largest:
            crowded = [kept for kept in strangers if crowds[kept.source] == largest]
            return min(crowded, key=_by_expiry)
        return _earlier([kept for kept in strangers if kept.source == held.source], held)

    def _farthest(self) -> bytes | None:
        """The key farthest from us that has none of our own records."""
        foreign = [key for key, records in self._keys.items() if self._node not in records]
        return max(foreign, key=lambda key: distance(key, self._node), default=None)

    def _drop_farthest(self, keep: bytes) -> bool:
        farthest = self._farthest()
        if farthest is None or farthest == keep:
            return False
        self._drop_key(farthest)
        return True

    def _put(self, key: bytes, held: Held) -> None:
        self._remove(key, held.publisher)
        self._keys.setdefault(key, {})[held.publisher] = held
        self._bytes += len(held.data)

    def _remove(self, key: bytes, publisher: bytes) -> None:
        records = self._keys.get(key, {})
        held = records.pop(publisher, None)
        if held is not None:
            self._bytes -= len(held.data)
            if not records:
                del self._keys[key]

    def _drop_key(self, key: bytes) -> None:
        for publisher in list(self._keys[key]):
            self._remove(key, publisher)

    def expire(self, now: float) -> None:
        """Drop what has expired at ``now`` (wall time)."""
        for key in self.held_keys():
            self._expire(key, now)

    def _expire(self, key: bytes, now: float) -> None:
        held = tuple(self._keys.get(key, {}).values())
        for publisher in (one.publisher for one in held if one.record.expires <= now):
            self._remove(key, publisher)

    def read(self, key: bytes, *, now: float) -> list[Held]:
        """The live records under ``key``, the newest first."""
        live = (held for held in self._keys.get(key, {}).values() if held.record.expires > now)
        return sorted(live, key=lambda held: held.rank)

    def held_keys(self) -> tuple[bytes, ...]:
        """The keys under which there are records."""
        return tuple(self._keys)

    def clear(self) -> None:
        """Forget all records."""
        self._keys.clear()
        self._bytes = 0

    @property
    def stored_bytes(self) -> int:
        """Bytes of all records."""
        return self._bytes

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    def check(self) -> None:
        """Raise LocalError unless every bound holds and the books are right."""
        everything = [held for records in self._keys.values() for held in records.values()]
        foreign = [key for key, records in self._keys.items() if self._node not in records]
        sound = (
            self._bytes == sum(len(held.data) for held in everything)
            and len(foreign) <= MAX_KEYS
            and all(0 < len(records) <= MAX_PUBLISHERS + 1 for records in self._keys.values())
        )
        if not sound:
            raise LocalError("the record storage is over its bounds or has miscounted")
