"""How a node shows that its id is its own, and that datagrams sent to its address arrive.

The epoch key is everybody's, so a sender id in a datagram is only a claim. Before a claim counts, both
sides sign what the other made up for this exchange: the one who asks signs the cookie that the one asked
has sent to the address the question came from; the one asked signs the question's random message id. Each
signature names both nodes and the signer's boot, so it is of no use elsewhere or later.

A member can still relay a whole exchange between two others and so appear to live where it does not; that
makes it one hop of lookups, and records carry signatures of their own.
"""

import hashlib
import hmac
import secrets
from typing import Annotated, Final

from msgspec import Meta, Struct

from swarm.clock import Clock
from swarm.dht.addresses import Address
from swarm.identity.keys import PrivateKey, verify
from swarm.ids import SHORT_ID_BYTES

COOKIE_BYTES: Final = 16
_COOKIE_SECONDS: Final = 120.0
"""A cookie is good for one to two of these; an exchange takes a round trip."""

_ASKING: Final = b"fusion-swarm dht asking 1\0"
_ANSWERING: Final = b"fusion-swarm dht answering 1\0"


class Proof(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A public key and its signature over one of the statements below."""

    public_key: Annotated[bytes, Meta(min_length=32, max_length=32)]
    signature: Annotated[bytes, Meta(min_length=64, max_length=64)]


def node_id(public_key: bytes) -> bytes:
    """The 20 bytes behind the PeerId of ``public_key``: a node's place in the DHT."""
    return hashlib.sha256(public_key).digest()[:SHORT_ID_BYTES]


def asking_statement(*, asking: bytes, boot: bytes, answering: bytes, cookie: bytes) -> bytes:
    """What the node that asks signs: ``boot`` is its own, ``cookie`` the other's."""
    return _ASKING + asking + boot + answering + cookie


def answering_statement(*, answering: bytes, boot: bytes, asking: bytes, message: bytes) -> bytes:
    """What the node that answers signs: ``boot`` is its own, ``message`` the other's random message id."""
    return _ANSWERING + answering + boot + asking + message


def make_proof(key: PrivateKey, statement: bytes) -> Proof:
    """``key``'s signature over ``statement``."""
    return Proof(key.public, key.sign(statement))


def is_proof(proof: Proof, node: bytes, statement: bytes) -> bool:
    """Whether ``proof`` shows that the holder of ``node``'s key made ``statement``."""
    return node_id(proof.public_key) == node and verify(proof.public_key, proof.signature, statement)


class Cookies:
    """Cookies that only their maker can make and check, without remembering any (as in RFC 9147, 5.1)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._current = self._previous = secrets.token_bytes(32)
        self._since = clock.elapsed()

    def make(self, address: Address, sender: bytes, boot: bytes) -> bytes:
        """The cookie for this sender at this address."""
        self._rotate()
        return _cookie(self._current, address, sender, boot)

    def check(self, cookie: bytes, address: Address, sender: bytes, boot: bytes) -> bool:
        """Whether we made ``cookie`` for this sender at this address, a short while ago."""
        self._rotate()
        return any(
            hmac.compare_digest(cookie, _cookie(secret, address, sender, boot))
            for secret in (self._current, self._previous)
        )

    def _rotate(self) -> None:
        now = self._clock.elapsed()
        age = now - self._since
        if age >= _COOKIE_SECONDS:
            fresh = secrets.token_bytes(32)
            self._previous = self._current if age < 2 * _COOKIE_SECONDS else fresh
            self._current = fresh
            self._since = now - age % _COOKIE_SECONDS


def _cookie(secret: bytes, address: Address, sender: bytes, boot: bytes) -> bytes:
    claim = sender + boot + str(address).encode()
    return hashlib.blake2s(claim, key=secret, digest_size=COOKIE_BYTES).digest()
