"""The peer record: where a peer says it can be reached, under its own signature (decision D2).

Encoded as 64 bytes of Ed25519 signature (RFC 8032) followed by the MessagePack array of
:class:`PeerRecord`. The signature covers a domain string and exactly the bytes that follow it, so a record
has one encoding only and means nothing in another place.

Nobody but the signer can make or change a record; what others can do is keep an old one. Therefore a reader
takes the highest ``sequence`` of each publisher, and :func:`check_dates` bounds how long an old one lives.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import MisuseError, RemoteProtocolError
from swarm.identity.keys import SIGNATURE_BYTES, PrivateKey, verify
from swarm.ids import PeerId, SwarmId, peer_id
from swarm.wire.limits import MAX_ADDRESS_LENGTH, MAX_ADDRESSES, MAX_RECORD_BYTES
from swarm.wire.messages.base import Count, ShortId
from swarm.wire.messages.hello import Role

MAX_RECORD_LIFETIME: Final = 2 * 3600.0
"""Seconds that a record may be valid for: what a departed peer leaves behind is gone by then."""

MAX_RECORD_SKEW: Final = 600.0
"""Seconds that a publisher's clock may be ahead of a reader's: what links tolerate."""

_DOMAIN: Final = b"fusion-swarm peer record 1\0"

RecordAddress = Annotated[
    str, Meta(min_length=3, max_length=MAX_ADDRESS_LENGTH, pattern=r"\A[!-~]+:[0-9]{1,5}\Z")
]
"""``host:port`` or ``[host]:port`` in printable ASCII, since it ends up on people's screens."""


class PeerRecord(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Where one peer of one swarm can be reached.

    ``sequence`` is the publisher's wall clock in milliseconds when it signed, or one more than its last
    where that is higher: it rises. ``expires`` is wall time, seconds since 1970 UTC.
    """

    format: Literal[1] = 1
    swarm: ShortId
    public_key: Annotated[bytes, Meta(min_length=32, max_length=32)]
    sequence: Count
    expires: Annotated[float, Meta(ge=0, le=1e11)]
    role: Role
    addresses: Annotated[tuple[RecordAddress, ...], Meta(max_length=MAX_ADDRESSES)]

    @property
    def peer(self) -> PeerId:
        """The publisher, by its key."""
        return peer_id(self.public_key)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(PeerRecord)


def sign_record(
    key: PrivateKey,
    *,
    swarm: SwarmId,
    sequence: int,
    expires: float,
    role: Role,
    addresses: tuple[str, ...],
) -> bytes:
    """The encoded record of ``key``'s peer; raises MisuseError where the addresses do not fit into one."""
    payload = _ENCODER.encode(
        PeerRecord(
            swarm=swarm,
            public_key=key.public,
            sequence=sequence,
            expires=expires,
            role=role,
            addresses=addresses,
        )
    )
    try:
        _DECODER.decode(payload)
    except msgspec.ValidationError as error:
        raise MisuseError(
            f"cannot publish the addresses {', '.join(addresses)}: give at most {MAX_ADDRESSES}, "
            f"each as HOST:PORT ({error})"
        ) from None
    size = SIGNATURE_BYTES + len(payload)
    if size > MAX_RECORD_BYTES:
        raise MisuseError(
            f"these addresses make a record of {size} bytes, over {MAX_RECORD_BYTES}: "
            "advertise fewer or shorter ones"
        )
    return key.sign(_DOMAIN + payload) + payload


def parse_record(data: bytes) -> PeerRecord:
    """The record in ``data``, its signature not yet checked; raises RemoteProtocolError.

    For readers that can refuse most records before they pay for :func:`check_signature`.
    """
    if len(data) > MAX_RECORD_BYTES:
        raise RemoteProtocolError(f"a peer record has {len(data)} bytes, over {MAX_RECORD_BYTES}")
    try:
        return _DECODER.decode(data[SIGNATURE_BYTES:])
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"a peer record does not parse: {error}") from None


def check_signature(record: PeerRecord, data: bytes) -> None:
    """Raise RemoteProtocolError unless ``data``, parsed as ``record``, carries its publisher's signature."""
    if not verify(record.public_key, data[:SIGNATURE_BYTES], _DOMAIN + data[SIGNATURE_BYTES:]):
        raise RemoteProtocolError("a peer record's signature does not verify")


def decode_record(data: bytes) -> PeerRecord:
    """The record in ``data`` with its signature verified; raises RemoteProtocolError for anything else."""
    record = parse_record(data)
    check_signature(record, data)
    return record


def check_dates(record: PeerRecord, *, now: float) -> None:
    """Raise RemoteProtocolError unless ``record`` is valid at ``now`` (wall time).

    Refused are the expired, the back-dated (``sequence`` older than the longest lifetime), and those dated
    further ahead than a clock may be wrong, in either field.
    """
    signed = record.sequence / 1000
    if record.expires <= now:
        raise RemoteProtocolError("a peer record has expired")
    if signed > now + MAX_RECORD_SKEW:
        raise RemoteProtocolError("a peer record is dated ahead of time")
    if signed < now - MAX_RECORD_LIFETIME:
        raise RemoteProtocolError("a peer record is dated too far back")
    if record.expires > now + MAX_RECORD_LIFETIME + MAX_RECORD_SKEW:
        raise RemoteProtocolError("a peer record would last too long")
