from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.errors import MisuseError, RemoteProtocolError
from swarm.identity.keys import PrivateKey
from swarm.ids import peer_id, swarm_id
from swarm.wire.limits import MAX_RECORD_BYTES
from swarm.wire.records.peer import (
    MAX_RECORD_LIFETIME,
    MAX_RECORD_SKEW,
    PeerRecord,
    check_dates,
    check_signature,
    decode_record,
    parse_record,
    sign_record,
)

KEY = PrivateKey.from_raw(bytes(range(32)))
SWARM = swarm_id(bytes(32))
NOW = 1_750_000_000.0

# Signature; then an array of 7: format, swarm, public key, sequence, expires, role, addresses.
GOLDEN = (
    "cc080374e3c481ea9cd4d6db891be7023ea52e9fdab291e3d8c9082bf064dc40"
    "d9a731666f4ac43119cd795d268f696cdabdf4c3e29ff2cc3ec2d51fe4dca908"
    "9701"
    "d9206d7a7568766c70796d6b36786f336570796766793568346f6561656a6f666566"
    "c42003a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
    "cf000001977420dc00cb41da13ba22000000a470656572"
    "91b13139382e35312e3130302e373a37343233"
)


def signed(key: PrivateKey = KEY, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "swarm": SWARM,
        "sequence": int(NOW * 1000),
        "expires": NOW + 1800,
        "role": "peer",
        "addresses": ("198.51.100.7:7423", "[2001:db8::1]:7423", "home.example:7423"),
    }
    return sign_record(key, **fields | changes)


def test_the_fields_come_back_under_the_publishers_id() -> None:
    record = decode_record(signed())
    assert record.peer == peer_id(KEY.public) == KEY.peer
    assert record.swarm == SWARM
    assert record.sequence == int(NOW * 1000)
    assert record.expires == NOW + 1800
    assert record.role == "peer"
    assert record.addresses == ("198.51.100.7:7423", "[2001:db8::1]:7423", "home.example:7423")


def test_golden_bytes() -> None:
    assert signed(addresses=("198.51.100.7:7423",)).hex() == GOLDEN


def test_any_changed_bit_is_refused() -> None:
    data = signed()
    for position in range(len(data) * 8):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        with pytest.raises(RemoteProtocolError):
            decode_record(bytes(changed))


def test_a_record_under_another_key_is_refused() -> None:
    data = signed()
    stolen = msgspec.structs.replace(parse_record(data), public_key=PrivateKey.generate().public)
    forged = data[:64] + msgspec.msgpack.encode(stolen)
    assert parse_record(forged) == stolen
    with pytest.raises(RemoteProtocolError, match="signature"):
        check_signature(stolen, forged)


def test_a_signature_over_the_bare_bytes_is_refused() -> None:
    payload = signed()[64:]
    with pytest.raises(RemoteProtocolError, match="signature"):
        decode_record(KEY.sign(payload) + payload)


@given(st.binary(max_size=900))
def test_any_bytes_decode_or_raise_the_documented_error(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_record(data)


@given(st.binary(max_size=20), st.integers(0, 260))
def test_bytes_added_or_cut_are_refused(tail: bytes, kept: int) -> None:
    data = signed()
    if tail:
        with pytest.raises(RemoteProtocolError):
            decode_record(data + tail)
    if kept < len(data):
        with pytest.raises(RemoteProtocolError):
            decode_record(data[:kept])


def self_signed(**changes: Any) -> bytes:
    """A record with any content under a good signature, as a hostile publisher makes it."""
    fields = msgspec.to_builtins(parse_record(signed()), builtin_types=(bytes,))
    names = PeerRecord.__struct_fields__
    values = [changes.get(name, value) for name, value in zip(names, fields, strict=True)]
    payload = msgspec.msgpack.encode(values)
    return KEY.sign(b"fusion-swarm peer record 1\0" + payload) + payload


def test_the_hostile_publisher_of_these_tests_can_make_a_good_record() -> None:
    assert self_signed() == signed()


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"swarm": "short"},
        {"public_key": bytes(31)},
        {"sequence": -1},
        {"sequence": 2**53},
        {"sequence": 1.5},
        {"expires": float("nan")},
        {"expires": float("inf")},
        {"expires": -1.0},
        {"role": "king"},
        {"addresses": ["10.0.0.1:1"] * 9},
        {"addresses": ["\x1b[31mred:1"]},
        {"addresses": ["10.0.0.1:1\n"]},
        {"addresses": ["10.0.0.1"]},
        {"addresses": ["caf\u00e9.example:1"]},
        {"addresses": [":1"]},
        {"addresses": ["a" * 900 + ":1"]},
    ],
)
def test_fields_out_of_bounds_are_refused_even_under_a_good_signature(changes: dict[str, Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_record(self_signed(**changes))


def test_eight_long_addresses_fit_and_more_bytes_are_refused() -> None:
    eight = tuple(f"[2001:db8:1111:2222:3333:4444:5555:{n:04x}]:65535" for n in range(8))
    assert len(signed(addresses=eight)) <= MAX_RECORD_BYTES
    with pytest.raises(MisuseError, match="over 800"):
        signed(addresses=tuple(f"{'a' * 250}.example:{n}" for n in range(1, 4)))


@pytest.mark.parametrize("addresses", [("10.0.0.1:1",) * 9, ("no port",), ("host:123456",)])
def test_addresses_that_make_no_record_are_named(addresses: tuple[str, ...]) -> None:
    with pytest.raises(MisuseError, match="cannot publish"):
        signed(addresses=addresses)


@pytest.mark.parametrize(
    ("signed_at", "expires_at", "reason"),
    [
        (0.0, 1800.0, None),
        (0.0, 0.0, "expired"),
        (-3600.0, -1.0, "expired"),
        (MAX_RECORD_SKEW, 1800.0, None),
        (MAX_RECORD_SKEW + 0.001, 1800.0, "ahead"),
        (1e9, 1e9 + 1, "ahead"),
        (-MAX_RECORD_LIFETIME, 1.0, None),
        (-MAX_RECORD_LIFETIME - 0.001, 1.0, "back"),
        (0.0, MAX_RECORD_LIFETIME + MAX_RECORD_SKEW, None),
        (0.0, MAX_RECORD_LIFETIME + MAX_RECORD_SKEW + 1, "too long"),
        (0.0, 7 * 86400.0, "too long"),
    ],
)
def test_dates_are_bounded_on_every_side(signed_at: float, expires_at: float, reason: str | None) -> None:
    record = decode_record(signed(sequence=int((NOW + signed_at) * 1000), expires=NOW + expires_at))
    if reason is None:
        check_dates(record, now=NOW)
        return
    with pytest.raises(RemoteProtocolError, match=reason):
        check_dates(record, now=NOW)
