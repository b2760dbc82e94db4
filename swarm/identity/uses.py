"""How many peers came by each invite: what a member that admits keeps, so that ``--uses 1`` means one."""

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from swarm.errors import FailureError, RemoteRefusalError
from swarm.identity.chain import Member
from swarm.identity.files import read_state, write_private
from swarm.identity.terms import InviteId
from swarm.ids import PeerId, short


class _State(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1]
    invites: dict[InviteId, tuple[PeerId, ...]]


class UseLedger:
    """The distinct peers of every counted invite, in the order in which they came.

    An invite that is not counted (``uses`` 0) leaves no trace, so strangers cannot make it grow.
    """

    def __init__(self) -> None:
        self._peers: dict[InviteId, dict[PeerId, None]] = {}

    def peers(self, invite: InviteId) -> tuple[PeerId, ...]:
        """Who came by ``invite``, as far as is known here."""
        return tuple(self._peers.get(invite, ()))

    def use(self, member: Member) -> bool:
        """Count ``member`` in; True where that changed the ledger, which then has to be saved.

        Coming again does not count. Raises RemoteRefusalError ``invite-used-up`` where all uses are taken.
        """
        if not member.uses or member.peer in self._peers.get(member.invite, ()):
            return False
        if len(self._peers.get(member.invite, ())) >= member.uses:
            times = "once" if member.uses == 1 else f"by {member.uses} peers"
            users = ", ".join(short(peer) for peer in self.peers(member.invite)[:4])
            raise RemoteRefusalError(
                "invite-used-up",
                f"the invite was for use {times}, and {users} did so: ask for a new one, "
                "or go on as that peer (--name)",
            )
        return self.learn(member)

    def learn(self, member: Member) -> bool:
        """Note that another admitter let ``member`` in, even beyond the count; True where that is news."""
        if not member.uses:
            return False
        peers = self._peers.setdefault(member.invite, {})
        if member.peer in peers:
            return False
        peers[member.peer] = None
        return True

    def encode(self) -> bytes:
        """The ledger as JSON."""
        invites = {invite: tuple(peers) for invite, peers in self._peers.items()}
        return msgspec.json.encode(_State(format=1, invites=invites))

    @classmethod
    def decode(cls, data: bytes) -> "UseLedger":
        """The ledger that :meth:`encode` wrote; raises ValueError for anything else."""
        try:
            state = msgspec.json.decode(data, type=_State)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ValueError(str(error)) from None
        ledger = cls()
        ledger._peers = {invite: dict.fromkeys(peers) for invite, peers in state.invites.items()}
        return ledger

    def save(self, path: Path) -> None:
        """Replace the file ``path``; raises FailureError with the cause."""
        write_private(path, self.encode())

    @classmethod
    def load(cls, path: Path) -> "UseLedger":
        """The ledger in ``path``, empty where there is no file; raises FailureError where it is damaged."""
        if not path.exists():
            return cls()
        try:
            return cls.decode(read_state(path))
        except ValueError as error:
            raise FailureError(
                f"the count of used invites in {path} is damaged ({error}): restore it"
            ) from None
