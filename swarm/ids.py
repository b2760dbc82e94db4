"""The names of things: identifiers and the small integers that count them.

Every identifier derived from bytes is written in lower-case base32 without padding (RFC 4648, section 6),
so that it can be read aloud, pasted into a shell and used as a file name on every system.
"""

import base64
import hashlib
from typing import Final, NewType

PeerId = NewType("PeerId", str)
"""32 characters: the first 20 bytes of SHA-256 of the peer's raw Ed25519 public key."""

SwarmId = NewType("SwarmId", str)
"""32 characters: the first 20 bytes of SHA-256 of the authority's raw Ed25519 public key."""

Digest = NewType("Digest", str)
"""52 characters: SHA-256 of a block's bytes."""

JobId = NewType("JobId", str)
"""52 characters: SHA-256 of the job's signed manifest."""

StageIndex = NewType("StageIndex", int)
Slot = NewType("Slot", int)
Incarnation = NewType("Incarnation", int)
Generation = NewType("Generation", int)
Step = NewType("Step", int)
MicroBatch = NewType("MicroBatch", int)
ValueId = NewType("ValueId", int)
"""Index of a tensor value in the OP-DAG."""
OperatorIndex = NewType("OperatorIndex", int)
StreamId = NewType("StreamId", int)

SHORT_ID_BYTES: Final = 20
SHORT_ID_LENGTH: Final = 32
DIGEST_LENGTH: Final = 52
SHOWN_LENGTH: Final = 8
"""Characters of an id that are shown to people; commands accept any unambiguous prefix."""


def base32(data: bytes) -> str:
    """Lower-case base32 of ``data`` without padding."""
    return base64.b32encode(data).decode("ascii").rstrip("=").lower()


def base32_decode(text: str) -> bytes:
    """The bytes that :func:`base32` wrote as ``text``; raises ValueError for any other string."""
    padded = text.upper() + "=" * (-len(text) % 8)
    data = base64.b32decode(padded.encode("ascii"))
    if base32(data) != text:
        raise ValueError("not canonical base32")
    return data


def peer_id(public_key: bytes) -> PeerId:
    """The id of the peer that holds the private half of ``public_key`` (32 raw bytes)."""
    return PeerId(base32(hashlib.sha256(public_key).digest()[:SHORT_ID_BYTES]))


def swarm_id(public_key: bytes) -> SwarmId:
    """The id of the swarm whose authority holds the private half of ``public_key`` (32 raw bytes)."""
    return SwarmId(base32(hashlib.sha256(public_key).digest()[:SHORT_ID_BYTES]))


def digest(data: bytes | bytearray | memoryview) -> Digest:
    """The name of a block: SHA-256 of its bytes."""
    return Digest(base32(hashlib.sha256(data).digest()))


def job_id(manifest: bytes) -> JobId:
    """The id of the job that the encoded signed ``manifest`` describes."""
    return JobId(base32(hashlib.sha256(manifest).digest()))


def short(identifier: str) -> str:
    """The first characters of an id, as shown to people."""
    return identifier[:SHOWN_LENGTH]
