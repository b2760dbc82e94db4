"""The printable form of an invite: ``swarm1`` and base32, one word of about 850 characters.

::

    text   = "swarm" version base32(body)            version: one digit, today 1
    body   = length (2 bytes, of packed) checksum (6 bytes of SHA-256 of packed) packed
    packed = DEFLATE (RFC 1951) of the invite's bytes, primed with a dictionary

Base32 (RFC 4648, lower case) because chat programs turn ``--`` into a dash and ``_`` into italics, and
because a double click selects all of it. The length and the checksum tell what was cut off from what was
mistyped. The dictionary holds what every invite's certificates have in common; without it the text would not
fit the 1,024 characters that a macOS terminal takes in one line of input.
"""

import base64
import hashlib
import re
import zlib
from typing import Final

from swarm.errors import MisuseError
from swarm.ids import base32

PREFIX: Final = "swarm"
VERSION: Final = "1"
LENGTH_BYTES: Final = 2
CHECKSUM_BYTES: Final = 6
MAX_TEXT_LENGTH: Final = 16_384
"""Characters of a text that is looked at; an invite with eight long addresses has about 4,000."""
MAX_INVITE_BYTES: Final = 8192
"""Bytes of an unpacked invite: two certificates, two keys and eight addresses are under 4,600."""

_ALPHABET: Final = frozenset("abcdefghijklmnopqrstuvwxyz234567")
_NOISE: Final = re.compile(r"[\W_]+")
_START: Final = re.compile(rf"{PREFIX}([0-9])", re.IGNORECASE)
_DICTIONARY: Final = base64.b64decode(
    "MIIBOTCB7KADAgECAggwBQYDK2VwMA4xDDAKBgNVBAMMA2xhYjAgFw0yNjA5MjAxNDEzMjBaGA8yMDU2MDkxMzE0MTMyMFowDjEMMAoG"
    "A1UEAwwDbGFiMCowBQYDK2VwAyEAo2YwZDAdBgNVHQ4EFgQUMBIGA1UdEwEB/wQIMAYBAf8CAQEwDgYDVR0PAQH/BAQDAgIEMB8GA1Ud"
    "IwQYMBaAFDAFBgMrZXADQQAwggHAMIIBcqADAgECAggwBQYDK2VwMA4xDDAKBgNVBAMMA2xhYjAgFw0yNjA5MjAxNDEzMjBaGA8yMDU2"
    "MDkxMzE0MTMyMFowKzEpMCcGA1UEAwwgo4HOMIHLMB0GA1UdDgQWBBQwEgYDVR0TAQH/BAgwBgEB/wIBADAOBgNVHQ8BAf8EBAMCAgQw"
    "ZQYUaYPZ7b+SocvihO2S0OC4pp75t1kETZcBoAHOarKNAJSlYWRtaXSqY29udHJpYnV0ZahvcmdhbmlzZaV0cmFpbsLEIA=="
)
"""Part of version 1: another dictionary is another version."""


def write_text(data: bytes) -> str:
    """The printable form of an invite's bytes."""
    compressor = zlib.compressobj(level=9, wbits=-zlib.MAX_WBITS, zdict=_DICTIONARY)
    packed = compressor.compress(data) + compressor.flush()
    body = len(packed).to_bytes(LENGTH_BYTES, "big") + _checksum(packed) + packed
    return PREFIX + VERSION + base32(body)


def looks_like_invite(text: str) -> bool:
    """Whether ``text`` begins as an invite does; white space and quotes from pasting do not matter."""
    return len(text) <= MAX_TEXT_LENGTH and _START.match(_NOISE.sub("", text)) is not None


def read_text(text: str) -> bytes:
    """The invite's bytes in ``text``, past line breaks, spaces, quotes and other marks from pasting.

    Raises MisuseError that tells apart what is no invite, what a newer version made, what is cut off, what
    has more behind it, and what is mistyped.
    """
    if not looks_like_invite(text):
        raise MisuseError(f"this is not an invite: one begins with {PREFIX}{VERSION} and is one long word")
    word = _NOISE.sub("", text).lower()
    version, letters = word[len(PREFIX)], word[len(PREFIX) + 1 :]
    if version != VERSION:
        if version == "0":
            raise MisuseError("the invite is mistyped in its first characters: copy it again")
        raise MisuseError("this invite was made by a newer version: pip install -U fusion-swarm")
    for position, letter in enumerate(letters):
        if letter not in _ALPHABET:
            where = position + len(PREFIX) + 2
            raise MisuseError(
                f"the invite is mistyped: character {where} ({letter!r}) is in none: copy it again"
            )
    return _unpack(_complete(letters))


def _complete(letters: str) -> bytes:
    """The packed bytes, once it is clear that all letters are there and right."""
    head = _bits(letters[:4])
    if len(head) < LENGTH_BYTES:
        raise MisuseError("the invite is cut off: copy all of it")
    size = LENGTH_BYTES + CHECKSUM_BYTES + int.from_bytes(head[:LENGTH_BYTES], "big")
    wanted = -(-size * 8 // 5)
    body = _bits(letters[:wanted])
    packed = body[LENGTH_BYTES + CHECKSUM_BYTES :]
    if len(letters) < wanted:
        there, all_of_them = (len(PREFIX + VERSION) + count for count in (len(letters), wanted))
        raise MisuseError(
            f"the invite is cut off or mistyped: it has {there} of {all_of_them} characters: copy all of it"
        )
    if base32(body) != letters[:wanted] or body[LENGTH_BYTES:][:CHECKSUM_BYTES] != _checksum(packed):
        raise MisuseError("the invite is mistyped (its checksum does not match): copy it again")
    if len(letters) > wanted:
        raise MisuseError(
            f"there is text behind the invite ({len(letters) - wanted} characters): copy it alone"
        )
    return packed


def _bits(letters: str) -> bytes:
    """The whole bytes in ``letters``, however many there are."""
    value = base64.b32decode((letters + "a" * (-len(letters) % 8)).upper().encode("ascii"))
    return value[: len(letters) * 5 // 8]


def _unpack(packed: bytes) -> bytes:
    decompressor = zlib.decompressobj(wbits=-zlib.MAX_WBITS, zdict=_DICTIONARY)
    try:
        data = decompressor.decompress(packed, MAX_INVITE_BYTES)
    except zlib.error:
        raise MisuseError("the invite is damaged: ask for a new one") from None
    if not decompressor.eof or decompressor.unused_data:
        raise MisuseError("the invite is damaged: ask for a new one")
    return data


def _checksum(packed: bytes) -> bytes:
    return hashlib.sha256(packed).digest()[:CHECKSUM_BYTES]
