"""The terms of an invite, as the authority signed them: a private extension of the delegate certificate."""

import hashlib
from typing import Annotated, Final, Literal, NewType

import msgspec
from cryptography.x509 import ObjectIdentifier
from msgspec import Meta, Struct

from swarm.errors import MisuseError
from swarm.identity.rights import Right, decode_rights, encode_rights
from swarm.ids import SHORT_ID_BYTES, base32

InviteId = NewType("InviteId", str)
"""32 characters: the first 20 bytes of SHA-256 of the raw public key of the invite's delegate key."""

TERMS_OID: Final = ObjectIdentifier("2.25.314930942731920229937485382028040756185")
"""Names the extension. The arc 2.25 is for anybody's UUID, without registration (ITU-T X.667, section 7)."""

MAX_LABEL_LENGTH: Final = 64
MAX_USES: Final = 1_000_000
"""Peers that one counted invite may let in; admitters remember each of them."""
MAX_JOIN_BY: Final = 2**40
"""Largest join-by date, seconds since 1970: far, and exact as an integer everywhere."""
DOOR_DIGEST_BYTES: Final = 32


def invite_id(public_key: bytes) -> InviteId:
    """The id of the invite whose delegate key has this public half (32 raw bytes)."""
    return InviteId(base32(hashlib.sha256(public_key).digest()[:SHORT_ID_BYTES]))


def door_digest(door_key: bytes) -> bytes:
    """What the terms say of the door key, so that the authority's signature covers it."""
    return hashlib.sha256(b"fusion-swarm door key\0" + door_key).digest()


class InviteTerms(Struct, frozen=True, kw_only=True):
    """What an invite is for. ``uses`` 0 does not count; ``join_by`` (wall seconds) 0 does not end.

    ``public`` marks an invite that a public swarm gives to strangers: it never carries more than contribute.
    ``door`` is :func:`door_digest` of the swarm's door key.
    """

    label: str
    uses: int
    join_by: int
    rights: frozenset[Right]
    public: bool
    door: bytes


class _Encoded(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1]
    label: Annotated[str, Meta(max_length=MAX_LABEL_LENGTH)]
    uses: Annotated[int, Meta(ge=0, le=MAX_USES)]
    join_by: Annotated[int, Meta(ge=0, le=MAX_JOIN_BY)]
    rights: Annotated[tuple[Annotated[str, Meta(max_length=32)], ...], Meta(min_length=1, max_length=32)]
    public: bool
    door: Annotated[bytes, Meta(min_length=DOOR_DIGEST_BYTES, max_length=DOOR_DIGEST_BYTES)]


def check_terms(terms: InviteTerms) -> InviteTerms:
    """The same terms, if an authority may sign them; raises MisuseError that says which one is wrong."""
    if len(terms.label) > MAX_LABEL_LENGTH or not terms.label.isprintable():
        raise MisuseError(f"the label must be printable and have at most {MAX_LABEL_LENGTH} characters")
    if not 0 <= terms.uses <= MAX_USES:
        raise MisuseError(f"uses must be between 0 (not counted) and {MAX_USES}, not {terms.uses}")
    if not 0 <= terms.join_by <= MAX_JOIN_BY:
        raise MisuseError("the join-by date is out of range: 0 stands for none")
    if terms.public and terms.rights - {Right.CONTRIBUTE}:
        raise MisuseError(
            "an invite for strangers carries contribute only: give it a --label to make it one person's"
        )
    return terms


def encode_terms(terms: InviteTerms) -> bytes:
    """The bytes of the extension."""
    return msgspec.msgpack.encode(
        _Encoded(
            format=1,
            label=terms.label,
            uses=terms.uses,
            join_by=terms.join_by,
            rights=encode_rights(terms.rights),
            public=terms.public,
            door=terms.door,
        )
    )


def decode_terms(data: bytes) -> InviteTerms:
    """The terms in the bytes of the extension; raises ValueError for what no authority may sign."""
    try:
        encoded = msgspec.msgpack.decode(data, type=_Encoded)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"its terms do not parse ({error})") from None
    terms = InviteTerms(
        label=encoded.label,
        uses=encoded.uses,
        join_by=encoded.join_by,
        rights=decode_rights(encoded.rights),
        public=encoded.public,
        door=encoded.door,
    )
    if Right.CONTRIBUTE not in terms.rights:
        raise ValueError("its terms lack the right contribute")
    try:
        return check_terms(terms)
    except MisuseError as error:
        raise ValueError(f"its terms are not allowed ({error})") from None
