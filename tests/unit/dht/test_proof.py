import itertools
from collections.abc import Callable

import pytest

from swarm.dht.addresses import Address
from swarm.dht.proof import (
    COOKIE_BYTES,
    Cookies,
    Proof,
    answering_statement,
    asking_statement,
    is_proof,
    make_proof,
    node_id,
)
from swarm.identity.keys import PrivateKey
from swarm.ids import base32
from swarm.testing.clock import ManualClock

HERE, THERE = Address.of("198.51.100.1", 7423), Address.of("198.51.100.2", 7423)
NODE, BOOT = bytes(20), bytes(8)


def test_a_node_id_is_the_bytes_behind_the_peer_id(make_key: Callable[[int], PrivateKey]) -> None:
    key = make_key(1)
    assert base32(node_id(key.public)) == key.peer


def test_a_proof_holds_for_its_own_node_and_statement_only(make_key: Callable[[int], PrivateKey]) -> None:
    key, other = make_key(1), make_key(2)
    node = node_id(key.public)
    proof = make_proof(key, b"statement")
    assert is_proof(proof, node, b"statement")
    assert not is_proof(proof, node, b"another")
    assert not is_proof(proof, node_id(other.public), b"statement")
    assert not is_proof(make_proof(other, b"statement"), node, b"statement")
    assert not is_proof(Proof(other.public, proof.signature), node_id(other.public), b"statement")


def test_statements_differ_wherever_any_part_does() -> None:
    parts = [bytes([1]) * 20, bytes([2]) * 20]
    boots = [bytes(8), bytes([1]) * 8]
    nonces = [bytes(16), bytes([1]) * 16]
    asking = {
        asking_statement(asking=a, boot=b, answering=c, cookie=d)
        for a, b, c, d in itertools.product(parts, boots, parts, nonces)
    }
    answering = {
        answering_statement(answering=a, boot=b, asking=c, message=d)
        for a, b, c, d in itertools.product(parts, boots, parts, nonces)
    }
    assert len(asking) == len(answering) == 16
    assert not asking & answering


def test_a_cookie_holds_for_one_sender_at_one_address() -> None:
    cookies = Cookies(ManualClock())
    cookie = cookies.make(HERE, NODE, BOOT)
    assert len(cookie) == COOKIE_BYTES
    assert cookies.check(cookie, HERE, NODE, BOOT)
    assert not cookies.check(cookie, THERE, NODE, BOOT)
    assert not cookies.check(cookie, Address(HERE.host, 1), NODE, BOOT)
    assert not cookies.check(cookie, HERE, bytes([1]) * 20, BOOT)
    assert not cookies.check(cookie, HERE, NODE, bytes([1]) * 8)
    assert not cookies.check(b"", HERE, NODE, BOOT)
    assert not Cookies(ManualClock()).check(cookie, HERE, NODE, BOOT)


@pytest.mark.parametrize(("age", "holds"), [(119.0, True), (121.0, True), (241.0, False), (9999.0, False)])
def test_a_cookie_grows_old(age: float, holds: bool) -> None:
    clock = ManualClock()
    cookies = Cookies(clock)
    cookie = cookies.make(HERE, NODE, BOOT)
    while age > 100:
        clock.advance(100)
        age -= 100
        cookies.check(b"", HERE, NODE, BOOT)
    clock.advance(age)
    assert cookies.check(cookie, HERE, NODE, BOOT) is holds


def test_after_a_long_sleep_no_old_cookie_holds() -> None:
    clock = ManualClock()
    cookies = Cookies(clock)
    cookie = cookies.make(HERE, NODE, BOOT)
    clock.advance(86400)
    assert not cookies.check(cookie, HERE, NODE, BOOT)
