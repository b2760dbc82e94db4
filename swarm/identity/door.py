"""The door: proof that one knows the swarm's door key, shown in the hello (decision D2).

The proof is bound to both ends of the TLS connection by their PeerIds, so it is worth nothing to anybody
else.
"""

import hashlib
import hmac
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from swarm.ids import PeerId

PROOF_BYTES: Final = 32
_CONTEXT: Final = b"fusion-swarm door 1\0"
_EPOCH_INFO: Final = b"fusion-swarm first dht epoch"


def door_proof(door_key: bytes, *, prover: PeerId, verifier: PeerId) -> bytes:
    """The 32-byte proof that ``prover`` shows to ``verifier``: HMAC-SHA256 (RFC 2104) under the door key."""
    text = _CONTEXT + f"{prover}>{verifier}".encode("ascii")
    return hmac.digest(door_key, text, hashlib.sha256)


def check_door(door_key: bytes, proof: bytes, *, prover: PeerId, verifier: PeerId) -> bool:
    """Whether ``proof`` is :func:`door_proof` of these; takes the same time whichever byte differs."""
    return hmac.compare_digest(proof, door_proof(door_key, prover=prover, verifier=verifier))


def first_epoch_key(door_key: bytes) -> bytes:
    """The 32-byte DHT key until somebody is revoked, the same for all with an invite: HKDF (RFC 5869)."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=_EPOCH_INFO).derive(door_key)
