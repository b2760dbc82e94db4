"""What a peer knows of who was revoked, and the DHT key that goes with it; kept on disk (decisions D1, D2).

Normally that is one list, the newest. Two copies of an authority's key can sign lists that do not know of
each other: all are kept until one supersedes them, and who is on any of them is out. Nobody is ever let in
again, so it does not matter in which order lists arrive.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import FailureError, RemoteProtocolError
from swarm.identity.chain import Member, show_time
from swarm.identity.files import read_state, write_private
from swarm.identity.revocation_list import MAX_LIST_BYTES, RevocationList, check_list
from swarm.identity.terms import InviteId
from swarm.ids import PeerId

MAX_LISTS: Final = 3
"""Lists of an authority whose copies disagree that are kept; the oldest make room."""

MAX_SEEN: Final = 1024
"""Lists that hold and are remembered by their digest: who repeats one costs a hash, not a signature."""


class _State(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1]
    lists: Annotated[
        tuple[Annotated[bytes, Meta(max_length=MAX_LIST_BYTES)], ...], Meta(max_length=MAX_LISTS)
    ]
    epoch_key: Annotated[bytes, Meta(max_length=32)]


class Revocations:
    """The lists that hold under ``authority`` (DER), and the newest DHT key they commit to."""

    def __init__(self, authority: bytes) -> None:
        self._authority = authority
        self._lists: tuple[RevocationList, ...] = ()
        self._seen: dict[bytes, None] = {}
        self._keyed: RevocationList | None = None
        self._key = b""

    @property
    def lists(self) -> tuple[bytes, ...]:
        """The lists as they are sent, the newest first."""
        return tuple(held.data for held in self._lists)

    @property
    def digest(self) -> bytes:
        """Equal at two peers who know the same lists and the newest key; empty for none."""
        if not self._lists or self._keyed is not self._lists[0]:
            return b""
        return hashlib.sha256(b"".join(held.digest for held in self._lists)).digest()

    @property
    def number(self) -> int:
        """The number of the newest list, 0 for none."""
        return self._lists[0].number if self._lists else 0

    @property
    def peers(self) -> frozenset[PeerId]:
        """Every revoked peer."""
        return frozenset().union(*(held.peers for held in self._lists))

    @property
    def invites(self) -> frozenset[InviteId]:
        """Every revoked invite."""
        return frozenset().union(*(held.invites for held in self._lists))

    @property
    def epoch_key(self) -> bytes:
        """The DHT key of :attr:`epoch`; empty in epoch 0, whose key comes from the invite."""
        return self._key

    @property
    def epoch(self) -> int:
        """The number of the newest list whose key is known."""
        return self._keyed.number if self._keyed else 0

    def learn(self, data: bytes) -> bool:
        """Take a list that somebody sent; True where it is news.

        Raises RemoteProtocolError where it does not hold.
        """
        digest = hashlib.sha256(data).digest()
        if digest in self._seen:
            return False
        new = check_list(data, authority=self._authority)
        self._seen[digest] = None
        if len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        if any(held.supersedes(new) for held in self._lists):
            return False
        kept = [held for held in self._lists if not new.supersedes(held)]
        self._lists = tuple(sorted([new, *kept], key=lambda held: held.rank, reverse=True)[:MAX_LISTS])
        return True

    def take_key(self, epoch_key: bytes) -> bool:
        """Take a DHT key that the newest list commits to; True where it is news, False for any other."""
        if not self._lists or self._lists[0] is self._keyed or not self._lists[0].commits_to(epoch_key):
            return False
        self._keyed, self._key = self._lists[0], epoch_key
        return True

    def learn_all(self, lists: Iterable[bytes], epoch_key: bytes) -> bool:
        """Take lists and the key that goes with the newest of them; True where anything was news.

        Raises RemoteProtocolError where a list does not hold; those before it are kept.
        """
        news = [self.learn(data) for data in lists]
        return self.take_key(epoch_key) or any(news)

    def sentence(self, member: Member) -> str:
        """Why ``member`` is out, addressed to it; empty where it is not."""
        for held in self._lists:
            if member.peer in held.peers:
                return f"the organiser revoked you on {show_time(held.wall)}"
            if member.invite in held.invites:
                return f"the organiser revoked your invite on {show_time(held.wall)}"
        return ""

    def save(self, path: Path) -> None:
        """Replace the file ``path``; raises FailureError with the cause."""
        state = _State(format=1, lists=self.lists, epoch_key=self._key)
        write_private(path, msgspec.msgpack.encode(state))

    @classmethod
    def load(cls, path: Path, *, authority: bytes) -> "Revocations":
        """What ``path`` holds, nothing where there is no file.

        Raises FailureError where it is damaged or of another swarm.
        """
        found = cls(authority)
        if not path.exists():
            return found
        try:
            state = msgspec.msgpack.decode(read_state(path), type=_State)
            for data in reversed(state.lists):
                found.learn(data)
        except (msgspec.DecodeError, RecursionError, RemoteProtocolError) as error:
            raise FailureError(
                f"the revocations in {path} are damaged ({error}): delete the file, the swarm's other peers "
                "know them"
            ) from None
        found.take_key(state.epoch_key)
        return found
