import itertools
from collections.abc import Callable
from typing import Any

import pytest

from swarm.dht.answering import Answering
from swarm.dht.limits import MAX_PUBLISHERS, K
from swarm.dht.messages import (
    FindNodes,
    FindRecords,
    Nodes,
    Ping,
    Pong,
    Records,
    Reply,
    Store,
    Stored,
    encode_body,
    record_tag,
)
from swarm.dht.proof import Proof
from swarm.dht.reachability import Reachability
from swarm.dht.seal import MAX_BODY_BYTES
from swarm.dht.storage import RecordStorage, check_record
from swarm.dht.table import Contact, Table, distance
from swarm.ids import SwarmId
from swarm.testing.clock import ManualClock

OWN = bytes(20)
KEY = b"\x07" * 20


class Scene:
    def __init__(self, swarm: SwarmId, *, storing: bool = True) -> None:
        self.clock = ManualClock()
        self.table = Table(OWN, clock=self.clock)
        self.storage = RecordStorage(OWN, swarm=swarm)
        self.answering = Answering(
            table=self.table,
            storage=self.storage,
            clock=self.clock,
            reachability=Reachability("always" if storing else "never", clock=self.clock),
        )


@pytest.fixture
def scene(swarm: SwarmId) -> Scene:
    return Scene(swarm)


@pytest.fixture
def asker(make_contact: Callable[..., Contact]) -> Contact:
    return make_contact(b"\xaa" * 20, host="203.0.113.9")


def test_a_ping_is_answered(scene: Scene, asker: Contact) -> None:
    assert scene.answering.answer(Ping(), asker) == Pong()


def test_the_k_closest_are_named_closest_first(
    scene: Scene, asker: Contact, make_contact: Callable[..., Contact]
) -> None:
    for number in range(1, 60):
        scene.table.add_contact(make_contact(bytes([number]) * 20))
    scene.table.add_contact(asker)
    answer = scene.answering.answer(FindNodes(KEY, True, True), asker)
    assert isinstance(answer, Nodes)
    listed = [contact.id for contact in scene.table.contacts() if contact is not asker]
    expected = sorted(listed, key=lambda node: distance(node, KEY))[:K]
    assert [entry.node for entry in answer.nodes] == expected


def test_the_silent_and_what_means_another_host_elsewhere_are_not_named(
    scene: Scene, asker: Contact, make_contact: Callable[..., Contact]
) -> None:
    silent = make_contact(b"\x01" * 20)
    silent.silences = 1
    loopback = make_contact(b"\x02" * 20, host="127.0.0.1")
    link_local = make_contact(b"\x03" * 20, host="fe80::1%2")
    good = make_contact(b"\x04" * 20)
    for contact in (silent, loopback, link_local, good):
        scene.table.add_contact(contact)
    answer = scene.answering.answer(FindNodes(KEY, True, True), asker)
    assert isinstance(answer, Nodes)
    assert [entry.node for entry in answer.nodes] == [good.id]
    near = make_contact(b"\xbb" * 20, host="127.0.0.1")
    answer = scene.answering.answer(FindNodes(KEY, True, True), near)
    assert isinstance(answer, Nodes)
    assert {entry.node for entry in answer.nodes} == {good.id, loopback.id}


def test_contacts_of_either_family_fit_into_one_datagram(
    scene: Scene, asker: Contact, make_contact: Callable[..., Contact]
) -> None:
    for number in range(1, 60):
        scene.table.add_contact(make_contact(bytes([number]) * 20, host=f"2001:db8::{number}"))
    answer = scene.answering.answer(FindNodes(KEY, True, True), asker)
    assert isinstance(answer, Nodes)
    assert len(answer.nodes) == K
    reply = Reply(message=bytes(16), storing=True, proof=Proof(bytes(32), bytes(64)), answer=answer)
    assert len(encode_body(reply)) <= MAX_BODY_BYTES


def test_only_families_that_the_asker_can_reach_are_named(
    scene: Scene, asker: Contact, make_contact: Callable[..., Contact]
) -> None:
    for number in range(1, 60):
        host = f"2001:db8::{number}" if number < 40 else f"10.1.0.{number}"
        scene.table.add_contact(make_contact(bytes([number]) * 20, host=host))
    for ipv4, ipv6 in itertools.product((True, False), repeat=2):
        answer = scene.answering.answer(FindNodes(bytes(20), ipv4, ipv6), asker)
        assert isinstance(answer, Nodes)
        wanted = {length for length, yes in ((6, ipv4), (18, ipv6)) if yes}
        assert {len(entry.address) for entry in answer.nodes} <= wanted
        assert len(answer.nodes) == min(K, 20 * ipv4 + 39 * ipv6)


def fill_storage(scene: Scene, make_record: Callable[..., bytes], count: int) -> list[bytes]:
    """``count`` records, the newest first."""
    wall = scene.clock.wall()
    records = [
        make_record(
            100 + number,
            wall=wall - number,
            addresses=tuple(f"[2001:db8::{number:x}:{port}]:7423" for port in range(number % 8)),
        )
        for number in range(count)
    ]
    for record in records:
        assert scene.storage.offer(KEY, record, now=wall) > 0
    return records


def pages(scene: Scene, asker: Contact, **question: Any) -> list[Records]:
    """All pages that a reader gets which only follows the cursor."""
    found: list[Records] = []
    cursor = b""
    while True:
        answer = scene.answering.answer(FindRecords(KEY, cursor=cursor, **question), asker)
        assert isinstance(answer, Records)
        reply = Reply(message=bytes(16), storing=True, proof=Proof(bytes(32), bytes(64)), answer=answer)
        assert len(encode_body(reply)) <= MAX_BODY_BYTES
        found.append(answer)
        if not answer.cursor:
            return found
        assert answer.cursor > cursor
        cursor = answer.cursor


def test_the_cursor_leads_through_all_records_newest_first(
    scene: Scene, asker: Contact, make_record: Callable[..., bytes]
) -> None:
    records = fill_storage(scene, make_record, MAX_PUBLISHERS)
    found = pages(scene, asker)
    assert [record for page in found for record in page.records] == records
    assert len(found) > 5


def test_known_records_are_left_out(
    scene: Scene, asker: Contact, make_record: Callable[..., bytes], swarm: SwarmId
) -> None:
    records = fill_storage(scene, make_record, 30)
    now = scene.clock.wall()
    known = b"".join(
        record_tag(held.publisher, held.record.sequence)
        for held in (check_record(record, swarm=swarm, now=now) for record in records[::2])
    )
    found = pages(scene, asker, known=known)
    assert [record for page in found for record in page.records] == records[1::2]


def test_one_publishers_record_can_be_asked_for(
    scene: Scene, asker: Contact, make_record: Callable[..., bytes], swarm: SwarmId
) -> None:
    records = fill_storage(scene, make_record, 30)
    publisher = check_record(records[17], swarm=swarm, now=scene.clock.wall()).publisher
    assert pages(scene, asker, publisher=publisher) == [Records((records[17],), b"")]
    assert pages(scene, asker, publisher=b"\xfe" * 20) == [Records((), b"")]


def test_expired_records_are_not_given_out(
    scene: Scene, asker: Contact, make_record: Callable[..., bytes]
) -> None:
    fill_storage(scene, make_record, 3)
    scene.clock.advance(1799)
    assert [len(page.records) for page in pages(scene, asker)] == [1]
    scene.clock.advance(2)
    assert pages(scene, asker) == [Records((), b"")]


def test_storing_says_what_is_held_afterwards(
    scene: Scene, asker: Contact, make_record: Callable[..., bytes]
) -> None:
    wall = scene.clock.wall()
    new, old = make_record(2, wall=wall), make_record(2, wall=wall, sequence=int(wall * 1000) - 5)
    assert scene.answering.answer(Store(KEY, (new, old, new)), asker) == Stored((int(wall * 1000),) * 3)


def test_a_client_takes_no_records_for_others(
    swarm: SwarmId, asker: Contact, make_record: Callable[..., bytes]
) -> None:
    scene = Scene(swarm, storing=False)
    record = make_record(2, wall=scene.clock.wall())
    assert scene.answering.answer(Store(KEY, (record, record)), asker) == Stored((0, 0))
    assert len(scene.storage) == 0
