"""Opening a home: how a program comes to its identity, at the first start and at every later one."""

from pathlib import Path

from swarm.errors import MisuseError
from swarm.identity.admission import admit
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey, load_key
from swarm.identity.membership import KEY_FILE, STATE_FILE, Identity
from swarm.identity.rights import Right


def open_identity(folder: Path, *, invite: Invite | None, now: float) -> Identity:
    """The identity of the home ``folder`` as it should be at ``now`` (wall seconds), saved where it changed.

    Without an invite the peer must have joined before. With one it joins, or changes over to it. A leaf past
    half its life is renewed. A peer that may admit admits itself, or else the first one of a swarm would have
    nobody to do so before its own join-by date.

    Raises MisuseError (no invite on the first join, an expired invite, one of another swarm) and FailureError
    (damaged or unwritable files).
    """
    before = Identity.load(folder) if (folder / STATE_FILE).exists() else None
    if before is not None:
        identity = before if invite is None else before.with_invite(invite, now=now)
    elif invite is not None:
        identity = Identity.join(invite, key=_key(folder), now=now)
    else:
        raise nobody_joined(folder)
    identity = identity.renewed(now=now)
    if not identity.admission and identity.member.may(Right.ADMIT):
        identity = identity.with_admission(admit(identity, identity.member, now=now))
    if identity != before:
        identity.save(folder)
    return identity


def nobody_joined(folder: Path) -> MisuseError:
    """What to do where the home ``folder`` is in no swarm yet."""
    return MisuseError(f"there is no peer in {folder} yet: give --invite to join a swarm")


def _key(folder: Path) -> PrivateKey:
    """The key that an interrupted first join has left, or a new one."""
    return load_key(folder / KEY_FILE) if (folder / KEY_FILE).exists() else PrivateKey.generate()
