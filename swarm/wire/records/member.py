"""What gossip spreads of each member: its record, under its own signature, and its credentials (D9).

A record is 64 bytes of Ed25519 signature (RFC 8032) and the MessagePack array of :class:`MemberRecord`; the
signature covers a domain string and exactly the bytes that follow it. It lives for ``MEMBER_LIFETIME`` after
its date, so that of two records of one peer the older is always gone first: what says that a peer has
departed outlives every record that says otherwise.

Credentials are the certificates and the admission that make a peer a member. They change rarely and are
four times as large, so they travel once, under their hash, which the record names.
"""

import hashlib
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import RemoteProtocolError
from swarm.identity.keys import SIGNATURE_BYTES, PrivateKey, verify
from swarm.identity.membership import MAX_ADMISSION_BYTES
from swarm.ids import SHORT_ID_BYTES, PeerId, base32_decode, peer_id
from swarm.wire.limits import MAX_ADDRESSES, MAX_CREDENTIALS_BYTES, MAX_MEMBER_RECORD_BYTES
from swarm.wire.messages.base import ShortId
from swarm.wire.messages.hello import Capabilities, Certificate, Role
from swarm.wire.records.peer import MAX_RECORD_SKEW, RecordAddress

MEMBER_LIFETIME: Final = 900.0
"""Seconds after its date that a record counts: a peer that died without a word is forgotten by then."""
VERSION_BYTES: Final = 8
"""Bytes of a version: the date in milliseconds (6), and the begin of the record's hash (2)."""

_DOMAIN: Final = b"fusion-swarm member record 1\0"

Rate = Annotated[int, Meta(ge=0, lt=2**53)]
"""Bytes a second; 0 where there is no limit."""


class MemberRecord(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """One peer, as it describes itself.

    ``sequence`` is its wall clock in milliseconds when it signed, or one more than its last where that is
    higher. ``up`` and ``down`` are what its owner lets it send and receive; like the capabilities they are
    claims (decision D6). ``credentials`` is the first 20 bytes of the SHA-256 of its encoded credentials.
    """

    format: Literal[1] = 1
    swarm: ShortId
    public_key: Annotated[bytes, Meta(min_length=32, max_length=32)]
    sequence: Annotated[int, Meta(ge=0, lt=2**48)]
    departed: bool
    role: Role
    addresses: Annotated[tuple[RecordAddress, ...], Meta(max_length=MAX_ADDRESSES)]
    capabilities: Capabilities
    up: Rate
    down: Rate
    credentials: Annotated[bytes, Meta(min_length=SHORT_ID_BYTES, max_length=SHORT_ID_BYTES)]

    @property
    def peer(self) -> PeerId:
        """Whose record it is, by the key."""
        return peer_id(self.public_key)

    @property
    def signed(self) -> float:
        """Wall time of its date."""
        return self.sequence / 1000

    @property
    def expires(self) -> float:
        """Wall time from which on it does not count."""
        return self.signed + MEMBER_LIFETIME


class Credentials(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Delegate and leaf (DER), and the encoded admission, empty where the peer has none yet."""

    format: Literal[1] = 1
    chain: tuple[Certificate, Certificate]
    admission: Annotated[bytes, Meta(max_length=MAX_ADMISSION_BYTES)]


_ENCODER: Final = msgspec.msgpack.Encoder()
_RECORDS: Final = msgspec.msgpack.Decoder(MemberRecord)
_CREDENTIALS: Final = msgspec.msgpack.Decoder(Credentials)


def sign_member(key: PrivateKey, record: MemberRecord) -> bytes:
    """``record`` under the signature of ``key``, which must be that of its peer."""
    payload = _ENCODER.encode(record)
    return key.sign(_DOMAIN + payload) + payload


def decode_member(data: bytes) -> MemberRecord:
    """The record in ``data``, its signature checked.

    Raises RemoteProtocolError, and nothing else, whatever the bytes.
    """
    if len(data) > MAX_MEMBER_RECORD_BYTES:
        raise RemoteProtocolError(f"a member record has {len(data)} bytes, over {MAX_MEMBER_RECORD_BYTES}")
    try:
        record = _RECORDS.decode(data[SIGNATURE_BYTES:])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a member record does not parse: {error}") from None
    if not verify(record.public_key, data[:SIGNATURE_BYTES], _DOMAIN + data[SIGNATURE_BYTES:]):
        raise RemoteProtocolError("a member record's signature does not verify")
    return record


def encode_credentials(chain: tuple[bytes, bytes], admission: bytes) -> bytes:
    """The credentials as they are hashed and sent."""
    return _ENCODER.encode(Credentials(chain=chain, admission=admission))


def decode_credentials(data: bytes) -> Credentials:
    """The credentials in ``data``, which prove nothing yet.

    Raises RemoteProtocolError, and nothing else, whatever the bytes.
    """
    if len(data) > MAX_CREDENTIALS_BYTES:
        raise RemoteProtocolError(f"credentials have {len(data)} bytes, over {MAX_CREDENTIALS_BYTES}")
    try:
        return _CREDENTIALS.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"credentials do not parse: {error}") from None


def credentials_name(data: bytes) -> bytes:
    """What records call the encoded credentials ``data``."""
    return hashlib.sha256(data).digest()[:SHORT_ID_BYTES]


def member_key(peer: PeerId) -> bytes:
    """The 20 bytes that the id of ``peer`` writes out."""
    return base32_decode(peer)


def version_of(record: MemberRecord, data: bytes) -> int:
    """What orders the records of one peer: the date, then the hash, so that two of one date have an order."""
    return record.sequence << 16 | int.from_bytes(hashlib.sha256(data).digest()[:2], "big")


def signed_at(version: int) -> float:
    """The wall time of the date in ``version``."""
    return (version >> 16) / 1000


def is_datable(version: int, *, now: float) -> bool:
    """Whether a record of ``version`` can count at ``now`` (wall): neither expired nor from the future."""
    signed = signed_at(version)
    return signed <= now + MAX_RECORD_SKEW and now < signed + MEMBER_LIFETIME
