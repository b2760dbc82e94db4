"""Ed25519 keys (RFC 8032): what a peer is. The PeerId is derived from the public half."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from swarm.errors import FailureError
from swarm.identity.files import read_state, write_private
from swarm.ids import PeerId, peer_id

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateKey:
    """An Ed25519 private key. ``raw`` is its 32-byte seed; the printed form shows the public half only."""

    raw: bytes = field(repr=False)
    public: bytes = field(init=False, repr=False, compare=False)
    peer: PeerId = field(init=False, compare=False)
    _key: Ed25519PrivateKey = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        key = Ed25519PrivateKey.from_private_bytes(self.raw)
        public = key.public_key().public_bytes_raw()
        object.__setattr__(self, "_key", key)
        object.__setattr__(self, "public", public)
        object.__setattr__(self, "peer", peer_id(public))

    @classmethod
    def generate(cls) -> "PrivateKey":
        """A new key from the system's randomness."""
        return cls(raw=Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def from_raw(cls, raw: bytes) -> "PrivateKey":
        """The key with this 32-byte seed; raises ValueError for any other length."""
        return cls(raw=raw)

    def sign(self, data: bytes) -> bytes:
        """The 64-byte signature of ``data``; the same data gives the same bytes (RFC 8032)."""
        return self._key.sign(data)

    def for_certificates(self) -> Ed25519PrivateKey:
        """The key as the certificate builder takes it."""
        return self._key


def verify(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether ``signature`` over ``data`` was made with the private half of ``public`` (32 raw bytes)."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def save_key(path: Path, key: PrivateKey) -> None:
    """Write ``key`` to ``path`` as PKCS #8 PEM, for the owner alone; raises FailureError with the cause."""
    pem = key.for_certificates().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write_private(path, pem)


def load_key(path: Path) -> PrivateKey:
    """The key that :func:`save_key` wrote; raises FailureError where there is none or it is damaged."""
    try:
        key = load_pem_private_key(read_state(path), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise FailureError(f"the private key {path} is damaged: restore it from a copy") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise FailureError(f"{path} is not an Ed25519 private key: restore it from a copy")
    return PrivateKey(raw=key.private_bytes_raw())
