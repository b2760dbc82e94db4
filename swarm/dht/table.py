"""The routing table: kademlia's, with its faults mended, over contacts that have shown their keys.

Taken from the library: buckets with their order by last contact, splitting, replacements, and the distance
of nodes. Mended here: ranges end where the next begins (an id on the border was sought in the wrong
bucket); a bucket splits by its depth in the id space, not by what its members happen to share; neighbours
are the exact k closest; nothing is sent from here, so no task is left without an owner; time is the given
clock's.
"""

import bisect
import itertools
from collections.abc import Callable, Iterator
from typing import Final

from kademlia.node import Node
from kademlia.routing import KBucket, RoutingTable

from swarm.clock import Clock
from swarm.dht.addresses import Address, may_pass
from swarm.dht.diversity import diverse
from swarm.dht.limits import MAX_SILENCES, MAX_SILENCES_ALONE, K
from swarm.dht.roundtrip import RoundTrip
from swarm.dht.seal import Envelope
from swarm.errors import LocalError
from swarm.ids import SHORT_ID_BYTES, PeerId, base32

ID_BITS: Final = SHORT_ID_BYTES * 8
_SPLIT_BITS: Final = 5
"""Levels that a bucket far from us may split further (b of the Kademlia paper, section 4.2)."""


_POOL: Final = 5
"""Times k contacts by distance, among which the places of k are given."""


class Contact(Node):  # type: ignore[misc]  # the library has no types
    """A node that has shown its key at this address.

    ``heard`` is the elapsed time of its last datagram and ``answered`` that of its last answer, ``silences``
    the calls in a row that it left unanswered, ``envelope`` how it sealed last, ``storing`` whether it holds
    records for others, ``invite`` by which it is a member: None where that is not known. What answers say of
    it is worked out once: ``nameable`` is whether they may say where it is at all.
    """

    id: bytes

    def __init__(self, node: bytes, address: Address, *, boot: bytes, storing: bool) -> None:
        super().__init__(node, address.host, address.port)
        self.address = address
        self.family = address.family
        self.packed = address.pack()
        self.loopback = address.is_loopback
        self.nameable = may_pass(address, between=address)
        self.prefix = address.neighbourhood
        self.peer = PeerId(base32(node))
        self.boot = boot
        self.storing = storing
        self.silences = 0
        self.heard = self.answered = 0.0
        self.envelope: Envelope | None = None
        self.invite: str | None = None
        self.round_trip = RoundTrip()


def distance(one: bytes, other: bytes) -> int:
    """How far apart two ids are: exclusive or, as a number (Kademlia paper, section 2.1)."""
    return int.from_bytes(one, "big") ^ int.from_bytes(other, "big")


class Table(RoutingTable):  # type: ignore[misc]  # the library has no types
    """Contacts by distance. Only ones that store for others belong here."""

    def __init__(self, node: bytes, *, clock: Clock, k: int = K) -> None:
        self._clock = clock
        super().__init__(None, k, Node(node))

    def flush(self) -> None:
        """Forget every contact."""
        self.buckets = [KBucket(0, 2**ID_BITS - 1, self.ksize)]
        self.buckets[0].last_updated = self._clock.elapsed()

    def split_bucket(self, index: int) -> None:
        """Make two buckets of one, which keep the time of its last lookup."""
        updated = self.buckets[index].last_updated
        super().split_bucket(index)
        for half in self.buckets[index : index + 2]:
            half.last_updated = updated

    def get_bucket_for(self, node: Node) -> int:
        """Index of the bucket whose range has ``node``."""
        return self._index(node.long_id)

    def _index(self, number: int) -> int:
        return bisect.bisect_right(self.buckets, number, key=_lowest) - 1

    def add_contact(self, contact: Contact) -> None:
        """Add ``contact`` or move it to the end of its bucket, as the one heard last.

        In a full bucket it takes the place of one that has been silent, or of one of too many that are alike
        (:mod:`swarm.dht.diversity`), or becomes a replacement: other old contacts that answer are never
        displaced (Kademlia paper, section 4.1).
        """
        listed = self.buckets[self._index(contact.long_id)].nodes
        if listed.get(contact.id) is contact:
            listed.move_to_end(contact.id)
            return
        while True:
            index = self.get_bucket_for(contact)
            bucket = self.buckets[index]
            if bucket.add_node(contact):
                bucket.replacement_nodes.pop(contact.id, None)
                return
            if not self._may_split(bucket):
                break
            self.split_bucket(index)
        self._settle(bucket)

    def remove_contact(self, contact: Contact) -> None:
        """Drop ``contact``; the best of those that wait takes its place."""
        super().remove_contact(contact)
        self._settle(self.buckets[self.get_bucket_for(contact)])

    def _settle(self, bucket: KBucket) -> None:
        """Give the places of a bucket to those of its members and replacements that are to have them."""
        if not bucket.replacement_nodes:
            return
        members = sorted(bucket.get_nodes(), key=lambda member: member.silences)
        live = [member for member in members if not member.silences]
        newest, *waiting = reversed(bucket.replacement_nodes.values())
        chosen = diverse([*live, newest, *members[len(live) :], *waiting], self.ksize)
        staying = {contact.id for contact in chosen}
        for member in members:
            if member.id not in staying:
                del bucket.nodes[member.id]
                bucket.replacement_nodes[member.id] = member
        for contact in chosen:
            if contact.id not in bucket.nodes:
                del bucket.replacement_nodes[contact.id]
                bucket.nodes[contact.id] = contact

    def _may_split(self, bucket: KBucket) -> bool:
        depth = ID_BITS - (bucket.range[1] - bucket.range[0]).bit_length()
        return depth < ID_BITS and bool(bucket.has_in_range(self.node) or depth % _SPLIT_BITS)

    def silent(self, contact: Contact, *, others_heard: bool) -> None:
        """``contact`` left a call unanswered; drop it where that has become a habit.

        Where nobody else was heard either, the fault may be our own line, and it is given more chances.
        """
        contact.silences += 1
        if contact.silences >= (MAX_SILENCES if others_heard else MAX_SILENCES_ALONE):
            self.remove_contact(contact)

    def find(self, node: bytes) -> Contact | None:
        """The contact with this id."""
        found: Contact | None = self.buckets[self._index(int.from_bytes(node, "big"))].nodes.get(node)
        return found

    def contacts(self) -> list[Contact]:
        """All contacts, without replacements."""
        return [contact for bucket in self.buckets for contact in bucket.get_nodes()]

    def by_distance(self, target: bytes) -> Iterator[Contact]:
        """All contacts, the closest to ``target`` first, itself included; sorted only as far as is read.

        Exact: ranges are aligned, so every member of one bucket is closer than any of the next.
        """
        number = int.from_bytes(target, "big")
        ranges = [(*bucket.range, bucket) for bucket in self.buckets]
        for _, bucket in sorted([((low ^ number) & ~(high - low), bucket) for low, high, bucket in ranges]):
            ranked = sorted([(contact.long_id ^ number, contact) for contact in bucket.nodes.values()])
            yield from [contact for _, contact in ranked]

    def closest(
        self, target: bytes, k: int | None = None, *, of: Callable[[Contact], bool] = lambda _: True
    ) -> list[Contact]:
        """The ``k`` contacts closest to ``target`` that are not all alike, closest first, itself included."""
        k = k or self.ksize
        return diverse(list(itertools.islice(filter(of, self.by_distance(target)), _POOL * k)), k)

    def find_neighbors(self, node: Node, k: int | None = None, exclude: Node | None = None) -> list[Contact]:
        """The exact k closest to ``node``, without itself and without ``exclude``."""
        unwanted = {node.id} | ({exclude.id} if exclude is not None else set())
        wanted = (contact for contact in self.by_distance(node.id) if contact.id not in unwanted)
        return list(itertools.islice(wanted, k or self.ksize))

    def looked_up(self, target: bytes) -> None:
        """A lookup of ``target`` has ended: its bucket is fresh."""
        self.buckets[self.get_bucket_for(Node(target))].last_updated = self._clock.elapsed()

    def lonely_buckets(self, age: float = 3600.0) -> list[KBucket]:
        """Buckets in whose range nothing was looked up for ``age`` seconds."""
        before = self._clock.elapsed() - age
        return [bucket for bucket in self.buckets if bucket.last_updated < before]

    def check(self) -> None:
        """Raise LocalError unless ranges cover the ids once, and every contact is in its own range, once."""
        edge = 0
        for bucket in self.buckets:
            sound = (
                bucket.range[0] == edge
                and len(bucket) <= self.ksize
                and all(bucket.has_in_range(contact) for contact in bucket.get_nodes())
                and not bucket.nodes.keys() & bucket.replacement_nodes.keys()
            )
            if not sound:
                raise LocalError(f"the bucket at {bucket.range} of the routing table is broken")
            edge = bucket.range[1] + 1
        if edge != 2**ID_BITS:
            raise LocalError("the routing table does not cover all ids")


def _lowest(bucket: KBucket) -> int:
    return int(bucket.range[0])
