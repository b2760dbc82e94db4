"""Whose word counts on the DHT key (decision D2): it opens the DHT, so a wrong one shuts a peer out of it.

Every member makes the first key itself, from the door key of its invite. A later one counts only from a door
that the node itself called, at an address that it had from its invite or from an earlier run, where a member
with the right ``admit`` answered; and only one that is a few numbers ahead, so that nobody can use up the
numbers. Nothing learnt otherwise is used, and so nothing else is handed on. Rotation will sign keys; then
who brings one no longer matters.
"""

from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from swarm.errors import RemoteProtocolError
from swarm.identity.chain import Member
from swarm.identity.rights import Right
from swarm.protocol.welcome import Epoch
from swarm.wire.messages.hello import Accept

KEY_BYTES: Final = 32
MOST_AHEAD: Final = 64
"""Rotations that a node may have missed while it runs."""

_INFO: Final = b"fusion-swarm first dht epoch"


def first_epoch(door_key: bytes) -> Epoch:
    """The DHT key before any rotation: the same for all members of a swarm."""
    return Epoch(
        number=0, key=HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=_INFO).derive(door_key)
    )


def newer_epoch(known: Epoch, accept: Accept, giver: Member, *, door: bool) -> Epoch | None:
    """The DHT key that ``accept`` brings, where it is to be used instead of ``known``.

    ``door`` says whether ``giver`` was called at a known door. Raises RemoteProtocolError where one who may
    give keys gives one that is none.
    """
    if not accept.epoch_key or not door or not giver.may(Right.ADMIT) or accept.epoch <= known.number:
        return None
    if len(accept.epoch_key) != KEY_BYTES or accept.epoch > known.number + MOST_AHEAD:
        raise RemoteProtocolError(
            f"its DHT key {accept.epoch} of {len(accept.epoch_key)} bytes cannot be one"
        )
    return Epoch(number=accept.epoch, key=accept.epoch_key)
