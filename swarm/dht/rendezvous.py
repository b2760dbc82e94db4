"""The keys of a swarm: where the records of its peers lie, so that none is crowded out.

One node keeps the records of 64 publishers under one key, so one key makes a swarm of more than that partly
blind. Therefore a record lies under two keys: the meeting point that all peers share, which is all that a
small swarm reads, and the shard that its publisher's id falls into, one of ``SHARDS``. Where the meeting
point is full, readers go through the shards; who looks for one peer looks in its shard alone. Which two keys
a record may lie under follows from its publisher, so nobody fills a node with keys of their own making
(docs/decisions/0013-a-meeting-point-and-shards.md).
"""

import hashlib
from typing import Final

from swarm.ids import SHORT_ID_BYTES, SwarmId, base32_decode

SHARDS: Final = 64
"""Sixteen publishers a shard in a swarm of a thousand: far from full, however ids happen to fall."""

_CONTEXT: Final = b"fusion-swarm rendezvous 1\0"


def _key(swarm: SwarmId, part: bytes) -> bytes:
    return hashlib.sha256(_CONTEXT + base32_decode(swarm) + part).digest()[:SHORT_ID_BYTES]


class Rendezvous:
    """The keys under which the peers of one swarm publish."""

    def __init__(self, swarm: SwarmId) -> None:
        self.meeting: Final = _key(swarm, b"")
        self.shards: Final = tuple(_key(swarm, bytes([number])) for number in range(SHARDS))

    def shard_of(self, publisher: bytes) -> bytes:
        """The shard that holds the record of the node ``publisher``."""
        return self.shards[publisher[0] % SHARDS]

    def keys_of(self, publisher: bytes) -> tuple[bytes, bytes]:
        """The keys under which ``publisher`` has its record."""
        return self.meeting, self.shard_of(publisher)

    def has(self, key: bytes, publisher: bytes) -> bool:
        """Whether a record of ``publisher`` may lie under ``key``."""
        return key in self.keys_of(publisher)
