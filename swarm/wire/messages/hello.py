"""Flow: entering. Both sides of a new link send ``Hello``; each answers with ``Accept`` or ``Refusal``.

A link is up once both have accepted; it ends with a CLOSE frame that says why.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from swarm.ids import DIGEST_LENGTH
from swarm.wire.limits import (
    MAX_ADDRESS_LENGTH,
    MAX_ADDRESSES,
    MAX_CERTIFICATE_BYTES,
    MAX_REVOCATION_LIST_BYTES,
    MAX_REVOCATION_LISTS,
)
from swarm.wire.messages.base import Count, Message, ShortId
from swarm.wire.text import PLAIN, Sentence, ShortText

PROTOCOL_VERSION: int = 1
"""The version this program speaks; it also understands all down to ``OLDEST_VERSION``."""
OLDEST_VERSION: int = 1
OLDEST_RELEASE: str = "0.1.0"
"""The first release that speaks ``OLDEST_VERSION``: those whose own is too old are told of it."""

Role = Literal["peer", "bootstrap", "author"]
Address = Annotated[str, Meta(min_length=3, max_length=MAX_ADDRESS_LENGTH, pattern=PLAIN)]
Addresses = Annotated[tuple[Address, ...], Meta(max_length=MAX_ADDRESSES)]
Certificate = Annotated[bytes, Meta(max_length=MAX_CERTIFICATE_BYTES)]
LongIdOrNone = Annotated[str, Meta(pattern=rf"\A([a-z2-7]{{{DIGEST_LENGTH}}})?\Z")]
"""A digest, or the empty string."""


class Capabilities(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What a peer can do for jobs. Claims: they may lower what it is given, never raise it (decision D6).

    ``memory`` is the bytes it offers to stages, 0 where it takes none. ``operators`` is the digest of its
    operator allow-list, empty without torch. ``like`` names what must be equal for bits to be equal: torch
    build, instruction set or GPU model, threads (DESIGN section 2, like machines); empty where the peer is
    like no other: without torch, or with stages that it compiles.
    """

    memory: Count
    device: ShortText
    torch: ShortText
    operators: LongIdOrNone
    like: Annotated[str, Meta(max_length=300, pattern=PLAIN)]


class Hello(Message, frozen=True, kw_only=True):
    """Both sides, first message. Repeats the certificates, which our own code checks (decision D1)."""

    NUMBER: ClassVar[int] = 1
    oldest: Annotated[int, Meta(ge=1, lt=2**16)]
    newest: Annotated[int, Meta(ge=1, lt=2**16)]
    program: ShortText
    swarm: ShortId
    role: Role
    chain: tuple[Certificate, Certificate]
    """Delegate and leaf, DER."""
    admission: Annotated[bytes, Meta(max_length=4096)]
    """The sender's encoded admission envelope; empty where it has none yet."""
    door: Annotated[bytes, Meta(max_length=32)]
    """Proof that the sender knows the swarm's door key (HMAC-SHA256 over both PeerIds); may be empty."""
    boot: Annotated[bytes, Meta(min_length=8, max_length=8)]
    """Random for each run of the program: tells a restart from a second copy."""
    wall: float
    """The sender's clock, seconds since 1970 UTC."""
    revocations: Annotated[bytes, Meta(max_length=32)]
    """Equal at two peers who know the same revocation lists and the newest DHT key; empty without any."""
    addresses: Addresses
    """``host:port`` (TCP, and UDP for the DHT) where the sender listens."""
    capabilities: Capabilities


class Accept(Message, frozen=True, kw_only=True):
    """The hello was good. ``observed`` is where the receiver was seen from, ``version`` the one to speak."""

    NUMBER: ClassVar[int] = 2
    version: Annotated[int, Meta(ge=1, lt=2**16)]
    observed: Annotated[str, Meta(max_length=MAX_ADDRESS_LENGTH, pattern=PLAIN)]
    admission: Annotated[bytes, Meta(max_length=4096)]
    """A new admission of the receiver, signed by a member with ``admit``; empty where none was needed."""


RefusalCode = Literal[
    "wrong-swarm",
    "unknown-authority",
    "invite-expired",
    "invite-used-up",
    "bad-certificate",
    "revoked",
    "banned",
    "version",
    "clock",
    "busy",
    "duplicate",
    "right-missing",
    "protocol",
]


class RevocationNews(Message, frozen=True, kw_only=True):
    """Both sides: somebody was revoked. Once up, to one whose hello shows that it knows other lists; then
    whenever there is news. ``epoch_key`` is the DHT key that the newest list commits to, for those who showed
    the door key; else empty."""

    NUMBER: ClassVar[int] = 4
    lists: Annotated[
        tuple[Annotated[bytes, Meta(max_length=MAX_REVOCATION_LIST_BYTES)], ...],
        Meta(max_length=MAX_REVOCATION_LISTS),
    ]
    epoch_key: Annotated[bytes, Meta(max_length=32)]


class Referral(Message, frozen=True, kw_only=True):
    """From a node that keeps no more links to a caller, before a CLOSE that says so: where others are."""

    NUMBER: ClassVar[int] = 5
    addresses: Addresses


class Refusal(Message, frozen=True, kw_only=True):
    """The hello was not good. The sentence is shown to the person at the other end."""

    NUMBER: ClassVar[int] = 3
    code: Annotated[str, Meta(pattern=r"\A[a-z-]{1,32}\Z")]
    """A :data:`RefusalCode`, or one that a newer program has: the sentence says what it means."""
    sentence: Sentence
