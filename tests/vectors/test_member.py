"""Golden bytes of what gossip spreads of a member. The file is added to, never edited."""

import json
from pathlib import Path

from swarm.identity.keys import PrivateKey
from swarm.ids import peer_id
from swarm.wire.messages.hello import Capabilities
from swarm.wire.records.member import (
    Credentials,
    MemberRecord,
    credentials_name,
    decode_credentials,
    decode_member,
    encode_credentials,
    sign_member,
    version_of,
)

VECTORS = json.loads((Path(__file__).parent / "member_v1.json").read_text("utf-8"))
KEY = PrivateKey.from_raw(bytes(range(32)))
RECORD = MemberRecord(
    swarm="a2" * 16,
    public_key=KEY.public,
    sequence=1_796_040_000_500,
    departed=False,
    role="peer",
    addresses=("192.0.2.1:7423", "[2001:db8::1]:7423"),
    capabilities=Capabilities(
        memory=6 << 30, device="cuda:0", torch="2.13.0", operators="k7" * 26, like="torch 2.13.0, cuda"
    ),
    up=125_000,
    down=0,
    credentials=bytes(range(20)),
)


def test_a_record_has_exactly_its_golden_bytes() -> None:
    golden = bytes.fromhex(VECTORS["record"])
    assert sign_member(KEY, RECORD) == golden
    assert decode_member(golden) == RECORD
    assert RECORD.peer == peer_id(KEY.public)


def test_a_version_is_the_date_and_the_begin_of_the_hash() -> None:
    version = version_of(RECORD, bytes.fromhex(VECTORS["record"]))
    assert version.to_bytes(8, "big").hex() == VECTORS["version"]
    assert version >> 16 == RECORD.sequence


def test_credentials_have_exactly_their_golden_bytes_and_name() -> None:
    golden = bytes.fromhex(VECTORS["credentials"])
    assert encode_credentials((b"delegate", b"leaf"), b"admission") == golden
    assert decode_credentials(golden) == Credentials(chain=(b"delegate", b"leaf"), admission=b"admission")
    assert credentials_name(golden).hex() == VECTORS["name"]
