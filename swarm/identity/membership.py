"""This peer's place in one swarm: its key, the invite it joined by, and the leaf it made itself (decision
D1).

In its folder ``key.pem`` is what the peer *is* and is written once; ``identity.json`` (invite, leaf,
admission) is replaced as a whole. Both are secrets. The other PEM files are copies for :mod:`ssl`, which
reads files only.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

import msgspec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_der_x509_certificate
from msgspec import Meta, Struct

from swarm.errors import FailureError, MisuseError, RemoteRefusalError
from swarm.identity.certificates import LEAF_LIFE, make_leaf
from swarm.identity.chain import Chain, Member, member_of, read_chain
from swarm.identity.files import make_private_folder, read_state, write_private
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey, load_key, save_key
from swarm.identity.profile import read_leaf
from swarm.ids import PeerId, SwarmId, short

KEY_FILE: Final = "key.pem"
STATE_FILE: Final = "identity.json"
MAX_ADMISSION_BYTES: Final = 4096
"""Bytes of an admission; ours have about 1,050."""


class TlsFiles(NamedTuple):
    """Paths for ``ssl.SSLContext``: leaf and delegate, the leaf's key, and the authority to verify with."""

    chain: Path
    key: Path
    authority: Path


class _State(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1]
    invite: str
    leaf: bytes
    admission: Annotated[bytes, Meta(max_length=MAX_ADMISSION_BYTES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One peer in one swarm.

    ``leaf`` is its certificate (DER), ``admission`` the encoded admission it was given, empty without one.
    Raises MisuseError when made from parts that do not belong together.
    """

    key: PrivateKey
    invite: Invite
    leaf: bytes = field(repr=False)
    admission: bytes = field(default=b"", repr=False)
    member: Member = field(init=False, repr=False)
    """This peer as the others see it."""

    def __post_init__(self) -> None:
        try:
            root, delegate, leaf, terms = read_chain(self.chain, self.invite.authority)
        except RemoteRefusalError as error:
            raise MisuseError(f"the certificate of this peer does not hold: {error}") from None
        if leaf.public_key != self.key.public:
            raise MisuseError("the certificate of this peer is for another key")
        object.__setattr__(self, "member", member_of(root, delegate, leaf, terms))

    @classmethod
    def join(cls, invite: Invite, *, key: PrivateKey, now: float) -> "Identity":
        """A new member by ``invite``; ``now`` in wall seconds. Raises MisuseError for an expired invite."""
        invite.require_open(now=now)
        return cls(key=key, invite=invite, leaf=_leaf(invite, key, now=now))

    @property
    def peer(self) -> PeerId:
        """The id of this peer."""
        return self.key.peer

    @property
    def swarm(self) -> SwarmId:
        """The id of its swarm."""
        return self.invite.swarm

    @property
    def name(self) -> str:
        """The name of its swarm."""
        return self.invite.name

    @property
    def authority(self) -> bytes:
        """The certificate of the swarm's authority (DER)."""
        return self.invite.authority

    @property
    def chain(self) -> Chain:
        """Delegate and leaf (DER), as the hello repeats them."""
        return self.invite.delegate, self.leaf

    @property
    def door_key(self) -> bytes:
        """The key that opens the door of a bootstrap node."""
        return self.invite.door_key

    @property
    def addresses(self) -> tuple[str, ...]:
        """The bootstrap addresses that came with the invite."""
        return self.invite.addresses

    def renewed(self, *, now: float) -> "Identity":
        """The same, with a new leaf where less than half of the life of the old one remains at ``now``."""
        leaf = read_leaf(self.leaf)
        if leaf.begins <= now <= leaf.ends - LEAF_LIFE.total_seconds() / 2:
            return self
        return replace(self, leaf=_leaf(self.invite, self.key, now=now))

    def with_admission(self, admission: bytes) -> "Identity":
        """The same, with the admission that another member signed; check it first (``check_admission``)."""
        return replace(self, admission=admission)

    def with_invite(self, invite: Invite, *, now: float) -> "Identity":
        """The same peer by ``invite``: new rights and chain, the old key, no admission yet.

        The invite it has already changes its addresses only, even after its date. Raises MisuseError for an
        expired invite, and for one of another swarm.
        """
        if invite.swarm != self.swarm:
            raise MisuseError(
                f"the invite is for the swarm {invite.name} ({short(invite.swarm)}), but this home is in "
                f"{self.name} ({short(self.swarm)}): give --name to use another home"
            )
        if invite.id == self.invite.id:
            return replace(self, invite=self.invite.with_addresses(invite.addresses or self.addresses))
        return Identity.join(invite, key=self.key, now=now)

    def save(self, folder: Path) -> None:
        """Write it to ``folder``.

        Raises MisuseError where that holds another peer's key, FailureError with the cause.
        """
        make_private_folder(folder)
        key_file = folder / KEY_FILE
        if not key_file.exists():
            save_key(key_file, self.key)
        elif load_key(key_file) != self.key:
            raise MisuseError(f"{folder} belongs to another peer: give --name to use another home")
        state = _State(format=1, invite=self.invite.encode(), leaf=self.leaf, admission=self.admission)
        write_private(folder / STATE_FILE, msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")

    @classmethod
    def load(cls, folder: Path) -> "Identity":
        """The identity saved in ``folder``; raises FailureError where there is none or it is damaged."""
        if not (folder / STATE_FILE).exists():
            raise FailureError(f"there is no peer in {folder} yet: give --invite to join a swarm")
        key = load_key(folder / KEY_FILE)
        try:
            state = msgspec.json.decode(read_state(folder / STATE_FILE), type=_State)
            invite = Invite.decode(state.invite)
            return cls(key=key, invite=invite, leaf=state.leaf, admission=state.admission)
        except (msgspec.DecodeError, MisuseError) as error:
            raise FailureError(
                f"{folder / STATE_FILE} is damaged ({error}): delete it and join again with --invite"
            ) from None

    def tls_files(self, folder: Path) -> TlsFiles:
        """Write the certificates as PEM to ``folder``, where it was saved; returns the paths."""
        files = TlsFiles(folder / "chain.pem", folder / KEY_FILE, folder / "authority.pem")
        write_private(files.chain, _pem(self.leaf) + _pem(self.invite.delegate))
        write_private(files.authority, _pem(self.authority))
        return files


def _leaf(invite: Invite, key: PrivateKey, *, now: float) -> bytes:
    return make_leaf(PrivateKey.from_raw(invite.delegate_key), key, now=now)


def _pem(der: bytes) -> bytes:
    return load_der_x509_certificate(der).public_bytes(Encoding.PEM)
