"""The authority: the organiser's root key, and what it has issued (decision D1).

Its folder holds ``key.pem`` (the root key: who has it is the organiser), ``authority.json`` (certificate,
door key, whether the swarm is public), ``invites.jsonl`` (see ``swarm.identity.issued``) and, once somebody
was revoked, ``revocations.bin`` (see ``swarm.identity.revocations``).
"""

import secrets
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import FailureError, MisuseError, RemoteRefusalError
from swarm.identity.certificates import make_authority, make_delegate
from swarm.identity.files import make_private_folder, read_state, sync_folder, write_private
from swarm.identity.invite import Invite
from swarm.identity.issued import IssuedInvite, append_issued, read_issued
from swarm.identity.keys import KEY_BYTES, PrivateKey, load_key, save_key
from swarm.identity.profile import MAX_NAME_BYTES, is_swarm_name, read_authority
from swarm.identity.revocation_list import MAX_REVOKED, sign_list
from swarm.identity.revocations import Revocations
from swarm.identity.rights import CONTRIBUTE_ONLY, Right
from swarm.identity.terms import InviteId, InviteTerms, check_terms, door_digest
from swarm.ids import PeerId, SwarmId, swarm_id

KEY_FILE: Final = "key.pem"
STATE_FILE: Final = "authority.json"
ISSUED_FILE: Final = "invites.jsonl"
REVOCATIONS_FILE: Final = "revocations.bin"


class _State(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1]
    certificate: bytes
    door_key: Annotated[bytes, Meta(min_length=KEY_BYTES, max_length=KEY_BYTES)]
    public: bool


class Authority:
    """The root of a swarm. Made by :meth:`create` or :meth:`load`.

    ``certificate`` (DER) goes into every invite; ``door_key`` (32 bytes) too. Once saved or loaded, every
    invite that it issues is on disk before anybody sees it.
    """

    def __init__(self, key: PrivateKey, certificate: bytes, *, door_key: bytes, public: bool) -> None:
        root = read_authority(certificate)
        if root.public_key != key.public:
            raise FailureError("the authority's key and certificate do not belong together")
        self._key = key
        self._folder: Path | None = None
        self._issued: list[IssuedInvite] = []
        self.revocations = Revocations(certificate)
        """What it has revoked, and what others with a copy of its key have, as far as it has heard."""
        self.certificate = certificate
        self.door_key = door_key
        self.public = public
        self.name = root.subject
        self.swarm: SwarmId = swarm_id(root.public_key)

    def __repr__(self) -> str:
        return f"Authority(name={self.name!r}, swarm={self.swarm!r}, public={self.public})"

    @classmethod
    def create(cls, name: str, *, public: bool, now: float) -> "Authority":
        """A new swarm; ``now`` in wall seconds. Raises MisuseError for a name that no swarm may have."""
        if not is_swarm_name(name):
            raise MisuseError(
                f"{name!r} cannot be a swarm's name: use letters and digits, with . _ - between them, "
                f"at most {MAX_NAME_BYTES} bytes"
            )
        key = PrivateKey.generate()
        certificate = make_authority(key, name, now=now)
        return cls(key, certificate, door_key=secrets.token_bytes(KEY_BYTES), public=public)

    def save(self, folder: Path) -> None:
        """Write all of it to ``folder``, which must not exist yet or be empty: nothing is ever overwritten.

        Raises MisuseError where something is there, FailureError where the system refuses. Either the whole
        authority appears under that name, or nothing does.
        """
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise MisuseError(f"there is something in {folder} already: choose another name for the swarm")
        make_private_folder(folder.parent)
        try:
            unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
            try:
                self._write(unfinished)
                if folder.exists():
                    folder.rmdir()
                unfinished.rename(folder)
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
            sync_folder(folder.parent)
        except OSError as error:
            raise FailureError(f"cannot write the authority to {folder}: {error.strerror}") from error
        self._folder = folder

    @classmethod
    def load(cls, folder: Path) -> "Authority":
        """The authority saved in ``folder``.

        Raises MisuseError where there is none, FailureError where it is damaged.
        """
        if not (folder / STATE_FILE).exists():
            raise MisuseError(f"there is no swarm's authority in {folder}: make one with swarm create NAME")
        try:
            state = msgspec.json.decode(read_state(folder / STATE_FILE), type=_State)
            key = load_key(folder / KEY_FILE)
            authority = cls(key, state.certificate, door_key=state.door_key, public=state.public)
        except (msgspec.DecodeError, RemoteRefusalError) as error:
            raise FailureError(
                f"the authority in {folder} is damaged ({error}): restore it from a copy"
            ) from None
        authority._issued = read_issued(folder / ISSUED_FILE)
        authority.revocations = Revocations.load(folder / REVOCATIONS_FILE, authority=state.certificate)
        authority._folder = folder
        return authority

    @property
    def issued(self) -> tuple[IssuedInvite, ...]:
        """All invites ever issued, the oldest first."""
        return tuple(self._issued)

    def issue(
        self,
        *,
        label: str,
        uses: int = 0,
        join_by: float = 0,
        rights: frozenset[Right] = CONTRIBUTE_ONLY,
        addresses: tuple[str, ...] = (),
        now: float,
    ) -> Invite:
        """A new invite. ``uses`` 0 is not counted, ``join_by`` (wall seconds) 0 does not end.

        In a public swarm an invite without a label is for strangers and may carry contribute only. Raises
        MisuseError for terms that no invite may have, and for a join-by date that has passed.
        """
        terms = check_terms(
            InviteTerms(
                label=label,
                uses=uses,
                join_by=int(join_by),
                rights=CONTRIBUTE_ONLY | rights,
                public=self.public and not label,
                door=door_digest(self.door_key),
            )
        )
        delegate_key = PrivateKey.generate()
        invite = Invite(
            authority=self.certificate,
            delegate=make_delegate(self._key, self.name, delegate=delegate_key.public, terms=terms, now=now),
            delegate_key=delegate_key.raw,
            door_key=self.door_key,
            addresses=addresses,
        )
        invite.require_open(now=now)
        record = IssuedInvite.of(invite, now=now)
        if self._folder is not None:
            append_issued(self._folder / ISSUED_FILE, record)
        self._issued.append(record)
        return invite

    def revoke(self, *, peers: Iterable[PeerId], invites: Iterable[InviteId], now: float) -> bool:
        """Sign a list with ``peers`` and ``invites`` on it too, and a new DHT key; False where all are on it.

        Once saved or loaded, it is on disk when this returns. Raises FailureError where the list is full.
        """
        known = self.revocations
        all_peers, all_invites = known.peers.union(peers), known.invites.union(invites)
        if (all_peers, all_invites) == (known.peers, known.invites):
            return False
        if len(all_peers) + len(all_invites) > MAX_REVOKED:
            raise FailureError(f"a revocation list names at most {MAX_REVOKED} peers and invites")
        epoch_key = secrets.token_bytes(KEY_BYTES)
        new = sign_list(
            self._key,
            number=known.number + 1,
            peers=all_peers,
            invites=all_invites,
            epoch_key=epoch_key,
            now=now,
        )
        known.learn(new.data)
        known.take_key(epoch_key)
        self.save_revocations()
        return True

    def save_revocations(self) -> None:
        """Write what is known of revocations, where the authority was saved; raises FailureError."""
        if self._folder is not None:
            self.revocations.save(self._folder / REVOCATIONS_FILE)

    def _write(self, folder: Path) -> None:
        save_key(folder / KEY_FILE, self._key)
        state = _State(format=1, certificate=self.certificate, door_key=self.door_key, public=self.public)
        write_private(folder / STATE_FILE, msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
        for record in self._issued:
            append_issued(folder / ISSUED_FILE, record)
