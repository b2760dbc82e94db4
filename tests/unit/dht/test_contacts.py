from collections.abc import Callable

import pytest

from swarm.dht.addresses import Address
from swarm.dht.contacts import Contacts
from swarm.dht.limits import MAX_PROVEN, MAX_SILENT, SILENCE_SECONDS
from swarm.dht.seal import Envelope, Opened, Suite
from swarm.dht.table import Contact, Table
from swarm.ids import base32
from swarm.testing.clock import ManualClock

NODE = b"\x01" * 20
HERE, THERE = Address.of("10.1.0.1", 7423), Address.of("10.1.0.2", 7423)
SEALED = Envelope(epoch=1, suite=Suite.CHACHA20_POLY1305)


def opened(node: bytes = NODE, boot: bytes = bytes(8)) -> Opened:
    return Opened(sender=node, boot=boot, envelope=SEALED, body=b"")


class Scene:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.table = Table(bytes(20), clock=self.clock)
        self.contacts = Contacts(self.table, clock=self.clock)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_an_admitted_node_is_recognised_at_its_address_for_its_run(scene: Scene) -> None:
    contact = scene.contacts.admit(opened(), HERE, storing=True)
    assert scene.contacts.recognise(opened(), HERE) is contact
    assert scene.contacts.recognise(opened(), THERE) is None
    assert scene.contacts.recognise(opened(boot=b"restarts"), HERE) is None
    assert scene.contacts.recognise(opened(node=b"\x02" * 20), HERE) is None
    assert contact.envelope == SEALED


def test_only_nodes_that_store_for_others_enter_the_table(scene: Scene) -> None:
    scene.contacts.admit(opened(), HERE, storing=False)
    assert scene.table.contacts() == []
    storing = scene.contacts.admit(opened(node=b"\x02" * 20), THERE, storing=True)
    assert scene.table.contacts() == [storing]


def test_a_node_that_stops_storing_leaves_the_table(scene: Scene) -> None:
    contact = scene.contacts.admit(opened(), HERE, storing=True)
    scene.contacts.note(contact, opened(), storing=False)
    assert scene.table.contacts() == []
    scene.contacts.note(contact, opened(), storing=True)
    assert scene.table.contacts() == [contact]


def test_a_node_at_two_addresses_keeps_the_first_while_it_answers(scene: Scene) -> None:
    first = scene.contacts.admit(opened(), HERE, storing=True)
    second = scene.contacts.admit(opened(), THERE, storing=True)
    assert scene.table.contacts() == [first]
    first.silences = 1
    scene.contacts.note(second, opened(), storing=True)
    assert scene.table.contacts() == [second]


def test_a_restarted_node_replaces_its_former_self(scene: Scene) -> None:
    scene.contacts.admit(opened(), HERE, storing=True)
    anew = scene.contacts.admit(opened(boot=b"restarts"), THERE, storing=True)
    assert scene.table.contacts() == [anew]


def test_newcomers_are_announced_once(scene: Scene) -> None:
    heard: list[Contact] = []
    scene.contacts.on_new = heard.append
    contact = scene.contacts.admit(opened(), HERE, storing=True)
    scene.contacts.note(contact, opened(), storing=True)
    assert heard == [contact]


def test_contacts_are_bounded_and_those_in_the_table_stay_known(scene: Scene) -> None:
    kept = scene.contacts.admit(opened(), HERE, storing=True)
    for number in range(MAX_PROVEN + 5):
        node = (2**150 + number).to_bytes(20, "big")
        scene.contacts.admit(opened(node=node), THERE, storing=False)
    assert len(scene.contacts) == MAX_PROVEN
    assert scene.contacts.recognise(opened(), HERE) is kept


def test_a_silent_node_is_passed_over_for_a_while_if_others_answered(
    scene: Scene, make_contact: Callable[..., Contact]
) -> None:
    scene.clock.advance(1)
    scene.contacts.silent(NODE, HERE, since=scene.clock.elapsed())
    assert not scene.contacts.is_silent(NODE, HERE)
    scene.contacts.admit(opened(node=b"\x02" * 20), THERE, storing=True)
    scene.contacts.silent(NODE, HERE, since=0.5)
    assert scene.contacts.is_silent(NODE, HERE)
    assert not scene.contacts.is_silent(NODE, THERE)
    scene.clock.advance(SILENCE_SECONDS)
    assert not scene.contacts.is_silent(NODE, HERE)


def test_a_node_that_speaks_is_silent_no_more(scene: Scene) -> None:
    contact = scene.contacts.admit(opened(), HERE, storing=True)
    scene.contacts.silent(NODE, HERE, since=-1)
    assert contact.silences == 1
    assert scene.contacts.is_silent(NODE, HERE)
    scene.contacts.note(contact, opened(), storing=True)
    assert contact.silences == 0
    assert not scene.contacts.is_silent(NODE, HERE)


def test_silence_at_one_address_is_not_held_against_another(scene: Scene) -> None:
    contact = scene.contacts.admit(opened(), HERE, storing=True)
    scene.contacts.silent(NODE, THERE, since=-1)
    scene.contacts.silent(None, HERE, since=-1)
    assert contact.silences == 0


def test_remembered_silences_are_bounded(scene: Scene) -> None:
    scene.contacts.admit(opened(), HERE, storing=True)
    for number in range(MAX_SILENT + 5):
        scene.contacts.silent(number.to_bytes(20, "big"), THERE, since=-1)
    assert len(scene.contacts._silent) == MAX_SILENT


def test_of_those_who_have_shown_one_invite_two_keep_their_places_while_others_want_them() -> None:
    clock = ManualClock()
    table = Table(bytes(20), clock=clock, k=4)
    invites: dict[str, str] = {}
    contacts = Contacts(table, clock=clock, invite_of=invites.get)
    for number in range(16):
        node = bytes([128 + number]) * 20
        invites[base32(node)] = f"invite {number}" if number % 3 == 0 else "everybody's"
        contacts.admit(opened(node), Address.of(f"26.0.{number}.1", 7423), storing=True)
    table.check()
    full = [bucket.get_nodes() for bucket in table.buckets if len(bucket) == 4]
    assert len(full) == 2
    for members in full:
        assert [contact.invite for contact in members].count("everybody's") == 2
