import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm.dht.calls import Target
from swarm.dht.limits import MAX_REMEMBERED
from swarm.dht.remembered import encode_contacts, load_contacts, save_contacts
from swarm.dht.table import Contact
from swarm.errors import FailureError


def contacts(make_contact: Callable[..., Contact], count: int) -> list[Contact]:
    made = []
    for number in range(count):
        contact = make_contact(number.to_bytes(20, "big"), host=f"2001:db8::{number:x}")
        contact.heard = float(number)
        made.append(contact)
    return made


def test_contacts_come_back_the_last_heard_first(
    tmp_path: Path, make_contact: Callable[..., Contact]
) -> None:
    path = tmp_path / "contacts.json"
    saved = contacts(make_contact, 3)
    save_contacts(path, encode_contacts(saved))
    assert load_contacts(path) == [
        Target(node=contact.id, address=contact.address) for contact in reversed(saved)
    ]


def test_the_file_is_json_that_a_person_can_read(make_contact: Callable[..., Contact]) -> None:
    state = json.loads(encode_contacts(contacts(make_contact, 1)))
    assert state == {"format": 1, "contacts": [{"peer": "a" * 32, "address": "[2001:db8::]:7423"}]}


def test_only_the_last_heard_are_kept(tmp_path: Path, make_contact: Callable[..., Contact]) -> None:
    path = tmp_path / "contacts.json"
    saved = contacts(make_contact, MAX_REMEMBERED + 20)
    save_contacts(path, encode_contacts(saved))
    assert {target.node for target in load_contacts(path)} == {contact.id for contact in saved[20:]}


def test_no_file_is_no_contacts(tmp_path: Path) -> None:
    assert load_contacts(tmp_path / "nothing.json") == []


GOOD = '{"format":1,"contacts":[{"peer":"%s","address":"10.0.0.1:7423"}]}' % ("a" * 32)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        GOOD[:-1],
        GOOD.replace('"format":1', '"format":2'),
        GOOD.replace("10.0.0.1:7423", "seed.example:7423"),
        GOOD.replace("10.0.0.1:7423", "10.0.0.1"),
        GOOD.replace("a" * 32, "a" * 31),
        GOOD.replace("a" * 32, "1" * 32),
        GOOD.replace('"peer"', '"path":"x","peer"'),
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_reported_and_costs_nothing_more(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "contacts.json"
    path.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert load_contacts(path) == []
    assert "remembered contacts cannot be used" in caplog.text


@given(st.binary(max_size=300))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_file_loads_or_gives_no_contacts(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "contacts.json"
    path.write_bytes(data)
    assert isinstance(load_contacts(path), list)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(FailureError, match="cannot write"):
        save_contacts(tmp_path / "missing" / "contacts.json", b"{}")


@pytest.mark.parametrize("attack", ["unsafe"])
def test_a_serialised_object_in_its_place_is_not_run(tmp_path: Path, attack: str) -> None:
    """The protocol-0 form of a call of os.system, as the library's state file would have run it."""
    path, mark = tmp_path / "contacts.json", tmp_path / attack
    command = f"echo > {mark}" if os.name != "nt" else f"type nul > {mark}"
    path.write_bytes(f"cos\nsystem\n(S'{command}'\ntR.".encode())
    assert load_contacts(path) == []
    assert not mark.exists()
