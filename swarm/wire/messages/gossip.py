"""Flow: gossip. What is known of members spreads over links: who has something says so, who lacks it asks.

any -> any   GossipDigest     (once a link is up, by the lower PeerId; then now and then to one link)
any -> any   GossipSummary    (of what is new, to a few links; of what differs, in answer to a digest)
any -> any   GossipRequest    (for what a summary names and the sender lacks)
any -> any   GossipAnswer     (to each request)
any -> all   GossipDeparture  (before its sender says goodbye)

Keys are the 20 bytes of a PeerId, names those of credentials, versions 8 bytes: see ``records.member``.
"""

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from swarm.ids import SHORT_ID_BYTES
from swarm.wire.limits import (
    MAX_CREDENTIALS_BYTES,
    MAX_GOSSIP_BITS,
    MAX_GOSSIP_BUCKETS,
    MAX_GOSSIP_REQUEST,
    MAX_GOSSIP_SUMMARY,
    MAX_MEMBER_RECORD_BYTES,
)
from swarm.wire.messages.base import Message
from swarm.wire.records.member import VERSION_BYTES

BUCKET_BYTES: Final = 8
"""Bytes of the digest of one bucket."""
ENTRY_BYTES: Final = SHORT_ID_BYTES + VERSION_BYTES
"""Bytes of an entry of a summary: the key of a peer, and the version of its record."""


class GossipDigest(Message, frozen=True, kw_only=True):
    """What the sender knows, as one digest a bucket, and of revocations (``Revocations.digest``).

    There are 2^n buckets; the first n bits of a key or a name say into which it belongs.
    """

    NUMBER: ClassVar[int] = 50
    buckets: Annotated[bytes, Meta(min_length=BUCKET_BYTES, max_length=MAX_GOSSIP_BUCKETS * BUCKET_BYTES)]
    revocations: Annotated[bytes, Meta(max_length=32)]


class GossipSummary(Message, frozen=True, kw_only=True):
    """Records and credentials that the sender has.

    With ``asking`` it answers a digest: it has all that the sender knows in these of 2^``bits`` buckets, and
    asks in return for what it lacks.
    """

    NUMBER: ClassVar[int] = 51
    records: Annotated[bytes, Meta(max_length=MAX_GOSSIP_SUMMARY * ENTRY_BYTES)]
    credentials: Annotated[bytes, Meta(max_length=MAX_GOSSIP_SUMMARY * SHORT_ID_BYTES)]
    bits: Annotated[int, Meta(ge=0, le=MAX_GOSSIP_BITS)]
    asking: Annotated[
        tuple[Annotated[int, Meta(ge=0, lt=MAX_GOSSIP_BUCKETS)], ...], Meta(max_length=MAX_GOSSIP_BUCKETS)
    ]


class GossipRequest(Message, frozen=True, kw_only=True):
    """Send these records and credentials."""

    NUMBER: ClassVar[int] = 52
    records: Annotated[bytes, Meta(max_length=MAX_GOSSIP_REQUEST * SHORT_ID_BYTES)]
    credentials: Annotated[bytes, Meta(max_length=MAX_GOSSIP_REQUEST * SHORT_ID_BYTES)]


class GossipDeparture(Message, frozen=True, kw_only=True):
    """The sender leaves: its own record, which says so."""

    NUMBER: ClassVar[int] = 54
    record: Annotated[bytes, Meta(max_length=MAX_MEMBER_RECORD_BYTES)]


class GossipAnswer(Message, frozen=True, kw_only=True):
    """What was asked for, as much as the sender has and as goes into one message, in the order asked."""

    NUMBER: ClassVar[int] = 53
    records: Annotated[
        tuple[Annotated[bytes, Meta(max_length=MAX_MEMBER_RECORD_BYTES)], ...],
        Meta(max_length=MAX_GOSSIP_REQUEST),
    ]
    credentials: Annotated[
        tuple[Annotated[bytes, Meta(max_length=MAX_CREDENTIALS_BYTES)], ...],
        Meta(max_length=MAX_GOSSIP_REQUEST),
    ]


Gossip = GossipDigest | GossipSummary | GossipRequest | GossipAnswer | GossipDeparture
