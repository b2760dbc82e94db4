from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swarm.errors import FailureError, RemoteProtocolError
from swarm.identity.authority import Authority
from swarm.identity.envelope import (
    ADMISSION,
    CANCELLATION,
    MANIFEST,
    MAX_ENVELOPE_BYTES,
    PLAN,
    Domain,
    open_envelope,
    seal,
)
from swarm.identity.membership import Identity

DAY = 86_400.0
FIELDS = ["format", "domain", "payload", "chain", "signature"]


@pytest.fixture
def sealed(alice: Identity) -> bytes:
    return seal(alice, MANIFEST, b"the payload")


def refused(data: bytes, identity: Identity, sentence: str, *, now: float, domain: Domain = MANIFEST) -> None:
    with pytest.raises(RemoteProtocolError, match=sentence):
        open_envelope(data, domain=domain, authority=identity.authority, now=now)


def changed(data: bytes, **fields: Any) -> bytes:
    values = msgspec.msgpack.decode(data)
    for name, value in fields.items():
        values[FIELDS.index(name)] = value
    return msgspec.msgpack.encode(values)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(payload=st.binary(max_size=500), domain=st.sampled_from([MANIFEST, PLAN, CANCELLATION, ADMISSION]))
def test_envelope_gives_back_who_and_what(alice: Identity, now: float, payload: bytes, domain: str) -> None:
    kind = cast("Domain", domain)
    data = seal(alice, kind, payload)
    member, opened = open_envelope(data, domain=kind, authority=alice.authority, now=now)
    assert (member, opened) == (alice.member, payload)


def test_same_arguments_give_the_same_bytes(alice: Identity, sealed: bytes) -> None:
    assert seal(alice, MANIFEST, b"the payload") == sealed
    assert msgspec.msgpack.decode(sealed)[:3] == [1, "manifest", b"the payload"]


@pytest.mark.parametrize("domain", [PLAN, CANCELLATION, ADMISSION])
def test_what_is_signed_for_one_purpose_is_worth_nothing_for_another(
    alice: Identity, sealed: bytes, now: float, domain: Domain
) -> None:
    refused(sealed, alice, f"signed as manifest, not as {domain}", now=now, domain=domain)
    refused(changed(sealed, domain=domain), alice, "signature", now=now, domain=domain)


def test_payload_and_signature_cannot_be_exchanged(alice: Identity, sealed: bytes, now: float) -> None:
    other = msgspec.msgpack.decode(seal(alice, MANIFEST, b"another payload"))
    refused(changed(sealed, payload=b"another payload"), alice, "signature", now=now)
    refused(changed(sealed, signature=other[4]), alice, "signature", now=now)
    open_envelope(
        changed(sealed, payload=other[2], signature=other[4]),
        domain=MANIFEST,
        authority=alice.authority,
        now=now,
    )


def test_chain_cannot_be_exchanged_even_for_another_of_the_same_key(
    alice: Identity, join: Callable[..., Identity], sealed: bytes, now: float
) -> None:
    """A fellow holder of an invite can certify anybody's key, so the signature covers the chain."""
    renewed = alice.renewed(now=now + 300 * DAY)
    assert renewed.key == alice.key
    refused(changed(sealed, chain=renewed.chain), alice, "signature", now=now + 300 * DAY)
    refused(changed(sealed, chain=join().chain), alice, "signature", now=now)


def test_every_flipped_bit_is_noticed(alice: Identity, sealed: bytes, now: float) -> None:
    for bit in range(8 * len(sealed)):
        damaged = bytearray(sealed)
        damaged[bit // 8] ^= 1 << bit % 8
        refused(bytes(damaged), alice, "envelope|signer|signature", now=now)


def test_every_other_encoding_of_the_same_is_refused(alice: Identity, sealed: bytes, now: float) -> None:
    longer = {
        "array16": b"\xdc\x00\x05" + sealed[1:],
        "uint8 format": sealed[:1] + b"\xcc\x01" + sealed[2:],
        "str8 domain": sealed[:2] + b"\xd9\x08" + sealed[3:],
        "bin16 payload": sealed.replace(b"\xc4\x0bthe payload", b"\xc5\x00\x0bthe payload"),
    }
    for data in longer.values():
        assert msgspec.msgpack.decode(data) == msgspec.msgpack.decode(sealed)
        refused(data, alice, "not in the one form", now=now)


def test_more_fields_other_formats_and_bytes_behind_are_refused(
    alice: Identity, sealed: bytes, now: float
) -> None:
    values = msgspec.msgpack.decode(sealed)
    refused(msgspec.msgpack.encode([*values, 0]), alice, "does not parse", now=now)
    refused(msgspec.msgpack.encode(values[:4]), alice, "does not parse", now=now)
    refused(changed(sealed, format=2), alice, "does not parse", now=now)
    refused(changed(sealed, domain="oath"), alice, "does not parse", now=now)
    refused(sealed + b"\0", alice, "does not parse", now=now)
    refused(b"", alice, "does not parse", now=now)
    refused(b"\x91" * 100_000, alice, "does not parse", now=now)


def test_envelope_of_another_swarm_is_refused(
    alice: Identity, join: Callable[..., Identity], now: float
) -> None:
    stranger = join(of=Authority.create("lab", public=False, now=now))
    refused(seal(stranger, MANIFEST, b""), alice, "the signer of the manifest is not known", now=now)


def test_envelope_by_an_expired_leaf_stays_good_and_one_from_the_future_is_not(
    alice: Identity, sealed: bytes, now: float
) -> None:
    member, _ = open_envelope(sealed, domain=MANIFEST, authority=alice.authority, now=now + 20 * 365 * DAY)
    assert member == alice.member
    refused(sealed, alice, "check the clocks", now=now - 366 * DAY)
    refused(sealed, alice, "check the clocks", now=now + 31 * 365 * DAY)


def test_size_is_limited_on_both_sides(alice: Identity, now: float) -> None:
    overhead = len(seal(alice, MANIFEST, b"\0" * 70_000)) - 70_000
    largest = seal(alice, MANIFEST, b"\0" * (MAX_ENVELOPE_BYTES - overhead))
    assert len(largest) == MAX_ENVELOPE_BYTES
    open_envelope(largest, domain=MANIFEST, authority=alice.authority, now=now)
    with pytest.raises(FailureError, match="900001 bytes signed, and 900000 are the most"):
        seal(alice, MANIFEST, b"\0" * (MAX_ENVELOPE_BYTES - overhead + 1))
    refused(b"\0" * (MAX_ENVELOPE_BYTES + 1), alice, "over the limit", now=now)
