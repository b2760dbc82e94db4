"""One revocation list: who must go, numbered, and signed by the authority itself (decision D1).

A list is whole: it names everybody revoked so far. It also commits to the DHT key that goes with it, so that
a key counts only if the authority made it (decision D2): rotation needs no trust in whoever passes it on.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import RemoteProtocolError, RemoteRefusalError
from swarm.identity.keys import KEY_BYTES, SIGNATURE_BYTES, PrivateKey, verify
from swarm.identity.profile import read_authority
from swarm.identity.terms import InviteId
from swarm.ids import SHORT_ID_LENGTH, PeerId, SwarmId, swarm_id

MAX_REVOKED: Final = 10_000
"""Peers and invites, together, that one list may name."""
MAX_LIST_BYTES: Final = 340 * 1024
"""Bytes of a list, so that a few of them go into one message."""
_CONTEXT: Final = b"fusion-swarm revocation list 1\0"
_COMMITMENT: Final = b"fusion-swarm dht epoch key\0"
_COMMITMENT_BYTES: Final = 32

_ShortId = Annotated[
    str,
    Meta(min_length=SHORT_ID_LENGTH, max_length=SHORT_ID_LENGTH, pattern=r"\A[a-z2-7]+\Z"),
]


class _Record(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1]
    swarm: _ShortId
    number: Annotated[int, Meta(ge=1, lt=2**40)]
    wall: Annotated[float, Meta(ge=0, le=2**53)]
    peers: Annotated[tuple[_ShortId, ...], Meta(max_length=MAX_REVOKED)]
    invites: Annotated[tuple[_ShortId, ...], Meta(max_length=MAX_REVOKED)]
    commitment: Annotated[bytes, Meta(min_length=_COMMITMENT_BYTES, max_length=_COMMITMENT_BYTES)]


class _Signed(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    record: Annotated[bytes, Meta(max_length=MAX_LIST_BYTES)]
    signature: Annotated[bytes, Meta(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RevocationList:
    """A list whose signature has been checked. ``wall`` (seconds since 1970 UTC) is when it was signed.

    ``commitment`` is that of the DHT key of epoch ``number``; ``data`` is the list as it is sent and stored.
    """

    number: int
    wall: float
    peers: frozenset[PeerId]
    invites: frozenset[InviteId]
    commitment: bytes
    data: bytes = field(repr=False)

    @property
    def digest(self) -> bytes:
        """SHA-256 of ``data``."""
        return hashlib.sha256(self.data).digest()

    @property
    def rank(self) -> tuple[int, bytes]:
        """The greatest is the newest; of two lists with one number, from two copies of a key, either."""
        return self.number, self.digest

    def supersedes(self, other: "RevocationList") -> bool:
        """Whether nothing is lost by forgetting ``other``."""
        return self.rank >= other.rank and self.peers >= other.peers and self.invites >= other.invites

    def commits_to(self, epoch_key: bytes) -> bool:
        """Whether ``epoch_key`` is the DHT key that goes with this list."""
        return commit(epoch_key) == self.commitment


def commit(epoch_key: bytes) -> bytes:
    """What a list says of the DHT key that goes with it."""
    return hashlib.sha256(_COMMITMENT + epoch_key).digest()


def sign_list(
    key: PrivateKey,
    *,
    number: int,
    peers: frozenset[PeerId],
    invites: frozenset[InviteId],
    epoch_key: bytes,
    now: float,
) -> RevocationList:
    """A list signed with the authority's ``key``; raises ValueError where it is too long or misnumbered."""
    if len(epoch_key) != KEY_BYTES:
        raise ValueError(f"an epoch key has {KEY_BYTES} bytes")
    record = msgspec.msgpack.encode(
        _Record(
            format=1,
            swarm=swarm_id(key.public),
            number=number,
            wall=now,
            peers=tuple(sorted(peers)),
            invites=tuple(sorted(invites)),
            commitment=commit(epoch_key),
        )
    )
    try:
        return _read(
            msgspec.msgpack.encode(_Signed(record=record, signature=key.sign(_CONTEXT + record))), key.public
        )
    except RemoteProtocolError as error:
        raise ValueError(str(error)) from None


def check_list(data: bytes, *, authority: bytes) -> RevocationList:
    """The list in ``data``, signed under ``authority`` (DER).

    Raises RemoteProtocolError, and nothing else, where it is malformed, of another swarm, or forged.
    """
    try:
        public = read_authority(authority).public_key
    except RemoteRefusalError as error:
        raise RemoteProtocolError(f"the authority of the revocation list does not hold: {error}") from None
    return _read(data, public)


def _read(data: bytes, public: bytes) -> RevocationList:
    if len(data) > MAX_LIST_BYTES:
        raise RemoteProtocolError(f"a revocation list of {len(data)} bytes is over the limit")
    try:
        signed = msgspec.msgpack.decode(data, type=_Signed)
        if not verify(public, signed.signature, _CONTEXT + signed.record):
            raise RemoteProtocolError("the revocation list is not signed by this swarm's authority")
        record = msgspec.msgpack.decode(signed.record, type=_Record)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the revocation list does not parse: {error}") from None
    if msgspec.msgpack.encode(signed) != data:
        raise RemoteProtocolError("the revocation list is not in the one form that it may have")
    if SwarmId(record.swarm) != swarm_id(public):
        raise RemoteProtocolError("the revocation list is of another swarm")
    return RevocationList(
        number=record.number,
        wall=record.wall,
        peers=frozenset(map(PeerId, record.peers)),
        invites=frozenset(map(InviteId, record.invites)),
        commitment=record.commitment,
        data=data,
    )
