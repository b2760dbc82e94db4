"""The lists inside gossip messages, packed and unpacked; what of two digests differs."""

from collections.abc import Iterable, Sequence

from swarm.errors import RemoteProtocolError
from swarm.ids import SHORT_ID_BYTES
from swarm.wire.limits import MAX_GOSSIP_ANSWER
from swarm.wire.messages.gossip import BUCKET_BYTES, ENTRY_BYTES, GossipAnswer, GossipSummary
from swarm.wire.records.member import VERSION_BYTES


def summary(
    versions: dict[bytes, int], names: Iterable[bytes], *, bits: int = 0, asking: tuple[int, ...] = ()
) -> GossipSummary:
    """A summary of these versions by key and these names; ``bits`` and ``asking`` as in the message."""
    entries = b"".join(key + version.to_bytes(VERSION_BYTES, "big") for key, version in versions.items())
    return GossipSummary(records=entries, credentials=b"".join(names), bits=bits, asking=asking)


def entries(packed: bytes) -> dict[bytes, int]:
    """The versions by key; raises RemoteProtocolError where ``packed`` ends in the middle of one."""
    return {
        piece[:SHORT_ID_BYTES]: int.from_bytes(piece[SHORT_ID_BYTES:], "big")
        for piece in pieces(packed, ENTRY_BYTES)
    }


def pieces(packed: bytes, size: int = SHORT_ID_BYTES) -> list[bytes]:
    """``packed`` in pieces of ``size`` bytes; raises RemoteProtocolError where it ends within one."""
    if len(packed) % size:
        raise RemoteProtocolError("a list in a gossip message ends in the middle of an entry")
    return [packed[at : at + size] for at in range(0, len(packed), size)]


def answer(records: Sequence[bytes], credentials: Sequence[bytes]) -> GossipAnswer:
    """As much of these as goes into one answer, in their order; the first piece always does."""
    room = MAX_GOSSIP_ANSWER
    chosen: tuple[list[bytes], list[bytes]] = [], []
    for pile, found in zip(chosen, (records, credentials), strict=True):
        for piece in found:
            if room >= len(piece) or room == MAX_GOSSIP_ANSWER:
                pile.append(piece)
                room -= len(piece)
    return GossipAnswer(records=tuple(chosen[0]), credentials=tuple(chosen[1]))


def bits_of(buckets: bytes) -> int:
    """The bits that number the buckets of a digest.

    Raises RemoteProtocolError where their count is no power of two.
    """
    bits = (len(buckets) // BUCKET_BYTES).bit_length() - 1
    if bits < 0 or len(buckets) != BUCKET_BYTES << bits:
        raise RemoteProtocolError("a digest has a number of buckets that is no power of two")
    return bits


def differing(ours: bytes, theirs: bytes) -> tuple[int, ...]:
    """The numbers of the buckets in which two digests of one size differ."""
    return tuple(
        number
        for number, (one, other) in enumerate(
            zip(pieces(ours, BUCKET_BYTES), pieces(theirs, BUCKET_BYTES), strict=True)
        )
        if one != other
    )
