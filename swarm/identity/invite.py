"""Invites: one printable string by which a newcomer certifies itself and finds the swarm (decision D1)."""

import re
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from swarm.errors import MisuseError, RemoteRefusalError
from swarm.identity.chain import require_issued, show_time
from swarm.identity.invite_text import MAX_TEXT_LENGTH, looks_like_invite, read_text, write_text
from swarm.identity.keys import KEY_BYTES, PrivateKey
from swarm.identity.profile import MAX_CERTIFICATE_BYTES, read_authority, read_delegate
from swarm.identity.rights import Right
from swarm.identity.terms import InviteId, InviteTerms, door_digest, invite_id
from swarm.ids import SwarmId, swarm_id

MAX_ADDRESSES: Final = 8
"""Bootstrap addresses in one invite."""
MAX_ADDRESS_LENGTH: Final = 262
"""A host name of 253 characters, brackets, a colon and a port."""
MAX_FILE_BYTES: Final = 4 * MAX_TEXT_LENGTH
"""Bytes of a file that are read: the longest text in the widest encoding."""
MAX_SHOWN_LENGTH: Final = 60
"""Characters of a wrong argument that are repeated to the person."""

_ADDRESS: Final = re.compile(r"[!-~]+:(\d{1,5})", re.ASCII)
_Certificate = Annotated[bytes, Meta(max_length=MAX_CERTIFICATE_BYTES)]
_Key = Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]


class _Encoded(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    authority: _Certificate
    delegate: _Certificate
    delegate_key: _Key
    door_key: _Key
    addresses: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_ADDRESS_LENGTH)], ...], Meta(max_length=MAX_ADDRESSES)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invite:
    """An invite that has been checked in everything but time: an instance is genuine.

    ``authority`` and ``delegate`` are certificates (DER), ``delegate_key`` and ``door_key`` 32 raw bytes,
    which no printed form shows. ``addresses`` are hints (``host:port``), which nobody signed. Raises
    MisuseError when made from parts that do not belong together.
    """

    authority: bytes = field(repr=False)
    delegate: bytes = field(repr=False)
    delegate_key: bytes = field(repr=False)
    door_key: bytes = field(repr=False)
    addresses: tuple[str, ...]
    swarm: SwarmId = field(init=False)
    name: str = field(init=False)
    id: InviteId = field(init=False)
    terms: InviteTerms = field(init=False)

    def __post_init__(self) -> None:
        try:
            root = read_authority(self.authority)
            delegate, terms = read_delegate(self.delegate)
            require_issued(delegate, root)
        except RemoteRefusalError as error:
            raise MisuseError(f"the signature of the invite does not hold: {error}") from None
        if PrivateKey.from_raw(self.delegate_key).public != delegate.public_key:
            raise MisuseError("the invite's key does not match its certificate: ask for a new one")
        if door_digest(self.door_key) != terms.door:
            raise MisuseError(
                "the invite's door key is not the one that its authority signed: ask for a new one"
            )
        object.__setattr__(self, "addresses", check_addresses(self.addresses))
        object.__setattr__(self, "swarm", swarm_id(root.public_key))
        object.__setattr__(self, "name", root.subject)
        object.__setattr__(self, "id", invite_id(delegate.public_key))
        object.__setattr__(self, "terms", terms)

    @property
    def label(self) -> str:
        """Whom the invite is for."""
        return self.terms.label

    @property
    def uses(self) -> int:
        """How many peers it lets in; 0 where that is not counted."""
        return self.terms.uses

    @property
    def join_by(self) -> int:
        """Wall seconds after which nobody joins by it any more; 0 where it does not end."""
        return self.terms.join_by

    @property
    def rights(self) -> frozenset[Right]:
        """What its holders may do."""
        return self.terms.rights

    @property
    def public(self) -> bool:
        """Whether it is one that a public swarm gives to strangers."""
        return self.terms.public

    def with_addresses(self, addresses: tuple[str, ...]) -> "Invite":
        """The same invite with other bootstrap addresses; raises MisuseError for one that is none."""
        return replace(self, addresses=addresses)

    def require_open(self, *, now: float) -> None:
        """Raise MisuseError where its join-by date has passed at ``now`` (wall seconds); says both times."""
        if self.join_by and now > self.join_by:
            raise MisuseError(
                f"the invite expired at {show_time(self.join_by, seconds=True)}, and the clock here says "
                f"{show_time(now, seconds=True)}: ask for a new one"
            )

    def encode(self) -> str:
        """The printable form: one word, of letters and digits only."""
        return write_text(
            msgspec.msgpack.encode(
                _Encoded(self.authority, self.delegate, self.delegate_key, self.door_key, self.addresses)
            )
        )

    @classmethod
    def decode(cls, text: str) -> "Invite":
        """The invite in ``text``, whatever white space and quotes pasting put into it.

        Raises MisuseError that says what is wrong.
        """
        try:
            parts = msgspec.msgpack.decode(read_text(text), type=_Encoded)
        except (msgspec.DecodeError, RecursionError):
            raise MisuseError("the invite is damaged: ask for a new one") from None
        return cls(
            authority=parts.authority,
            delegate=parts.delegate,
            delegate_key=parts.delegate_key,
            door_key=parts.door_key,
            addresses=parts.addresses,
        )


def check_addresses(addresses: tuple[str, ...]) -> tuple[str, ...]:
    """``addresses`` in their order, each once; raises MisuseError for one that is not ``host:port``."""
    for address in addresses:
        match = _ADDRESS.fullmatch(address)
        if match is None or len(address) > MAX_ADDRESS_LENGTH or not 0 < int(match[1]) < 2**16:
            raise MisuseError(
                f"{address[:MAX_SHOWN_LENGTH]!r} is not an address: write HOST:PORT or [IPV6]:PORT"
            )
    unique = tuple(dict.fromkeys(addresses))
    if len(unique) > MAX_ADDRESSES:
        raise MisuseError(f"an invite holds at most {MAX_ADDRESSES} addresses, not {len(unique)}")
    return unique


def read_invite(source: str) -> Invite:
    """The invite that ``--invite`` names: the string itself, a file with it, or ``-`` for standard input.

    Raises MisuseError that says what is wrong with it.
    """
    if source.strip() == "-":
        return _decode_from("standard input", _read_standard_input())
    if _is_file(source):
        return _decode_from(source, _read_file(Path(source)))
    if not looks_like_invite(source):
        shown = source if len(source) <= MAX_SHOWN_LENGTH else source[:MAX_SHOWN_LENGTH] + "..."
        raise MisuseError(f"{shown!r} is neither an invite (one begins with swarm1) nor a file")
    return Invite.decode(source)


def _decode_from(place: str, text: str) -> Invite:
    try:
        return Invite.decode(text)
    except MisuseError as error:
        raise MisuseError(f"{place}: {error}") from None


def _read_standard_input() -> str:
    if sys.stdin is None or sys.stdin.closed:
        raise MisuseError("there is no standard input to read the invite from: give it as a string or a file")
    try:
        # A person who pastes at a terminal ends with Enter, not with an end of file.
        read = sys.stdin.buffer.readline if sys.stdin.isatty() else sys.stdin.buffer.read
        return _text(read(MAX_FILE_BYTES))
    except OSError as error:
        raise MisuseError(f"the invite on standard input cannot be read: {error.strerror}") from None


def _is_file(source: str) -> bool:
    try:
        return Path(source).exists() and not Path(source).is_dir()
    except (OSError, ValueError):  # too long for a name, or with a zero byte in it: no path
        return False


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return _text(file.read(MAX_FILE_BYTES))
    except OSError as error:
        raise MisuseError(f"the invite file {path} cannot be read: {error.strerror}") from None


def _text(data: bytes) -> str:
    # Redirecting output in Windows PowerShell writes UTF-16 with a byte order mark.
    encoding = "utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
    return data.decode(encoding, errors="replace")
