"""What an authority remembers of the invites it issued: one JSON object a line, added to and never edited.

It is the organiser's list for ``swarm members`` and ``swarm revoke``; no peer trusts it. It holds no secret:
an invite cannot be made from it again.
"""

import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from swarm.errors import FailureError
from swarm.identity.files import read_state
from swarm.identity.invite import Invite
from swarm.identity.rights import Right, decode_rights, encode_rights
from swarm.identity.terms import InviteId
from swarm.log import get_log

log = get_log(__name__)

_APPEND: Final = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)


class IssuedInvite(Struct, frozen=True, kw_only=True):
    """One issued invite. ``wall`` is when, ``join_by`` as in InviteTerms, both in seconds since 1970 UTC."""

    id: InviteId
    label: str
    uses: int
    join_by: int
    may: tuple[str, ...]
    public: bool
    wall: float

    @classmethod
    def of(cls, invite: Invite, *, now: float) -> "IssuedInvite":
        """The record of ``invite``, issued at ``now``."""
        return cls(
            id=invite.id,
            label=invite.label,
            uses=invite.uses,
            join_by=invite.join_by,
            may=encode_rights(invite.rights),
            public=invite.public,
            wall=now,
        )

    @property
    def rights(self) -> frozenset[Right]:
        """What its holders may do."""
        return decode_rights(self.may)


def append_issued(path: Path, record: IssuedInvite) -> None:
    """Add ``record`` at the end of the file, on disk when this returns; raises FailureError with the cause.

    One write call in append mode: two commands at once both get their line in.
    """
    line = msgspec.json.encode(record) + b"\n"
    try:
        descriptor = os.open(path, _APPEND, 0o600)
        try:
            if _ends_in_mid_line(path):
                line = b"\n" + line
            os.write(descriptor, line)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise FailureError(f"cannot write {path}: {error.strerror}") from error


def read_issued(path: Path) -> list[IssuedInvite]:
    """The records in the file, the oldest first; none where there is no file.

    A line that a crash or a full disk cut short was never acknowledged, and is passed over with a warning.
    """
    if not path.exists():
        return []
    records: list[IssuedInvite] = []
    for number, line in enumerate(read_state(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            records.append(msgspec.json.decode(line, type=IssuedInvite))
        except (msgspec.DecodeError, RecursionError):
            log.warning("a line of the list of issued invites is unreadable", file=str(path), line=number)
    return records


def _ends_in_mid_line(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return False
        file.seek(-1, os.SEEK_END)
        return file.read(1) != b"\n"
