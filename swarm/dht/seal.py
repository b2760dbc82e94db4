"""Sealed datagrams: what an outsider sends is noise, and what they record is worthless (decision D2).

::

    suite u8 | epoch u64 | sender 20 | boot 8 | counter u64 | milliseconds u64 | ciphertext | tag 16

All integers are big-endian; the 53 bytes before the ciphertext are authenticated. The key is HKDF-SHA256
(RFC 5869) of the epoch key over suite, sender and boot; ``boot`` is random for each :class:`Sealer`, so a
counter never meets the same key twice. Two suites: AES-256-GCM-SIV (RFC 8452), which forgives a repeated
nonce (a cloned virtual machine), and ChaCha20-Poly1305 (RFC 8439), which every build of the library has.

The key is known to every member, so a good seal shows that *a* member sent the datagram, not which one:
that is what :mod:`swarm.dht.proof` is for.
"""

import secrets
import struct
from collections import OrderedDict
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV, ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from swarm.clock import Clock
from swarm.dht.limits import MAX_AGE_SECONDS, MAX_DATAGRAM_BYTES, MAX_SEEN, MAX_SENDERS
from swarm.errors import LocalError, RemoteProtocolError

EPOCH_KEY_BYTES: Final = 32
BOOT_BYTES: Final = 8
_HEADER: Final = struct.Struct(">BQ20s8sQQ")
_TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_EPOCHS_KEPT: Final = 2
MAX_BODY_BYTES: Final = MAX_DATAGRAM_BYTES - _HEADER.size - _TAG_BYTES


class Suite(IntEnum):
    """The cipher of a datagram."""

    AES_GCM_SIV = 1
    CHACHA20_POLY1305 = 2


def _supported() -> tuple[Suite, ...]:
    try:
        AESGCMSIV(bytes(32))
    except UnsupportedAlgorithm:
        return (Suite.CHACHA20_POLY1305,)
    return (Suite.AES_GCM_SIV, Suite.CHACHA20_POLY1305)


SUITES: Final = _supported()
"""What this build can open, best first. The last one is what every build can."""


class Refused(StrEnum):
    """Why a datagram was dropped without an answer."""

    SIZE = "size"
    SUITE = "suite"
    EPOCH = "epoch"
    TIME = "time"
    SEEN = "seen"
    TAG = "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """How a datagram was sealed, for an answer that is to be read by the one who sealed it."""

    epoch: int
    suite: Suite


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A datagram that a member sealed, recently, and that has not come before."""

    sender: bytes
    boot: bytes
    envelope: Envelope
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sender:
    """One that was heard lately: how it seals, and the key of that."""

    envelope: Envelope
    cipher: AESGCMSIV | ChaCha20Poly1305


class _Seen:
    """The tags of what has come lately: two generations, of which the older is forgotten in time.

    Everybody who has the epoch key can claim any sender and any counter, so counters say nothing: what came
    once are bytes, and the tag tells those from any others. A flood shortens the memory, and mutes nobody.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._newer: set[bytes] = set()
        self._older: set[bytes] = set()
        self._since = clock.elapsed()

    def __contains__(self, tag: bytes) -> bool:
        return tag in self._newer or tag in self._older

    def add(self, tag: bytes) -> None:
        now = self._clock.elapsed()
        if now - self._since >= 2 * MAX_AGE_SECONDS or len(self._newer) >= MAX_SEEN:
            self._newer, self._older = set(), self._newer
            self._since = now
        self._newer.add(tag)


class Sealer:
    """Seals our datagrams and opens those of others, under the newest two epoch keys."""

    def __init__(self, node: bytes, *, clock: Clock, suites: tuple[Suite, ...] = SUITES) -> None:
        self._node = node
        self._clock = clock
        self._suites = suites
        self.boot: Final = secrets.token_bytes(BOOT_BYTES)
        self._counter = 0
        self._epochs: dict[int, bytes] = {}
        self._own: dict[Envelope, AESGCMSIV | ChaCha20Poly1305] = {}
        self._senders: OrderedDict[tuple[bytes, bytes, int, int], _Sender] = OrderedDict()
        self._seen = _Seen(clock)

    def set_epoch(self, number: int, key: bytes) -> None:
        """Seal under ``key`` if ``number`` is the highest; the highest two are accepted.

        Raises RemoteProtocolError for a key that is not 32 bytes: it came from another peer.
        """
        if len(key) != EPOCH_KEY_BYTES or not 0 <= number < 2**64:
            raise RemoteProtocolError(f"an epoch key has {EPOCH_KEY_BYTES} bytes, not {len(key)}")
        if self._epochs.get(number) == key:
            return
        self._epochs[number] = key
        for old in sorted(self._epochs)[:-_EPOCHS_KEPT]:
            del self._epochs[old]
        self._own.clear()
        self._senders.clear()

    @property
    def has_epoch(self) -> bool:
        """Whether there is a key to seal under."""
        return bool(self._epochs)

    def best(self, heard: Envelope | None) -> Envelope:
        """The newest epoch, and the suite that the other sealed with when it was ``heard`` last, else our
        best. Raises LocalError before the first epoch key."""
        if not self._epochs:
            raise LocalError("datagrams cannot be sealed before there is an epoch key")
        suite = heard.suite if heard is not None else self._suites[0]
        return Envelope(epoch=max(self._epochs), suite=suite)

    def compatible(self, heard: Envelope | None) -> Envelope:
        """What the other can read that did not answer to :meth:`best`: the epoch it was ``heard`` with, or
        our older one, and the suite that every build has."""
        epoch = heard.epoch if heard is not None and heard.epoch in self._epochs else min(self._epochs)
        return Envelope(epoch=epoch, suite=self._suites[-1])

    def seal(self, body: bytes, envelope: Envelope) -> bytes:
        """The datagram with ``body``; raises LocalError where it is over the limit or the epoch is gone."""
        if len(body) > MAX_BODY_BYTES:
            raise LocalError(f"a datagram's body of {len(body)} bytes is over {MAX_BODY_BYTES}")
        cipher = self._own.get(envelope)
        if cipher is None:
            cipher = self._own[envelope] = self._cipher(envelope, self._node, self.boot)
        self._counter += 1
        stamp = int(self._clock.wall() * 1000)
        header = _HEADER.pack(
            envelope.suite, envelope.epoch, self._node, self.boot, self._counter, max(stamp, 0)
        )
        return header + cipher.encrypt(_nonce(self._counter), body, header)

    def open(self, datagram: bytes) -> Opened | Refused:
        """What a member sealed in ``datagram``, or why it is dropped. Never raises, whatever the bytes.

        The cheap reasons come first; a key is derived only for a known epoch and a fresh time, and kept
        only once a datagram was good under it, so noise neither costs memory nor displaces anybody.
        """
        if not _HEADER.size + _TAG_BYTES <= len(datagram) <= MAX_DATAGRAM_BYTES:
            return Refused.SIZE
        suite, epoch, node, boot, counter, stamp = _HEADER.unpack_from(datagram)
        if suite not in self._suites:
            return Refused.SUITE
        if epoch not in self._epochs:
            return Refused.EPOCH
        if abs(self._clock.wall() - stamp / 1000) > MAX_AGE_SECONDS:
            return Refused.TIME
        tag = datagram[-_TAG_BYTES:]
        if tag in self._seen:
            return Refused.SEEN
        name = (node, boot, epoch, suite)
        sender = self._senders.get(name)
        if sender is None:
            envelope = Envelope(epoch=epoch, suite=Suite(suite))
            sender = _Sender(envelope=envelope, cipher=self._cipher(envelope, node, boot))
        header, sealed = datagram[: _HEADER.size], datagram[_HEADER.size :]
        try:
            body = sender.cipher.decrypt(_nonce(counter), sealed, header)
        except InvalidTag:
            return Refused.TAG
        self._seen.add(tag)
        self._remember(name, sender)
        return Opened(sender=node, boot=boot, envelope=sender.envelope, body=body)

    def _remember(self, name: tuple[bytes, bytes, int, int], sender: _Sender) -> None:
        """Keep the keys of the senders heard last: deriving one costs more than a datagram."""
        self._senders[name] = sender
        self._senders.move_to_end(name)
        if len(self._senders) > MAX_SENDERS:
            self._senders.popitem(last=False)

    def _cipher(self, envelope: Envelope, node: bytes, boot: bytes) -> AESGCMSIV | ChaCha20Poly1305:
        key = self._epochs.get(envelope.epoch)
        if key is None:
            raise LocalError(f"there is no key for epoch {envelope.epoch}")
        context = b"fusion-swarm dht datagram 1\0" + bytes([envelope.suite]) + node + boot
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=context).derive(key)
        return AESGCMSIV(derived) if envelope.suite is Suite.AES_GCM_SIV else ChaCha20Poly1305(derived)


def _nonce(counter: int) -> bytes:
    return counter.to_bytes(_NONCE_BYTES, "big")
