"""Admissions: a member with ``admit`` puts on record that it let a newcomer in (decision D1).

Certificates live long; what ends is joining. Until an invite's join-by date its chain alone is enough; after
it only those count who were admitted before. So the first member with ``admit`` that a newcomer meets signs
an admission, which the newcomer shows from then on.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import RemoteProtocolError
from swarm.identity.chain import Member
from swarm.identity.envelope import ADMISSION, open_envelope, seal
from swarm.identity.membership import MAX_ADMISSION_BYTES, Identity
from swarm.identity.rights import Right
from swarm.identity.terms import InviteId
from swarm.ids import SHORT_ID_LENGTH, PeerId

GRACE_SECONDS: Final = 60
"""How long after the join-by date an admission may be dated: a newcomer that dialled in time is let in."""
SKEW_SECONDS: Final = 600
"""How far an admission may be dated ahead of our clock; links with a larger difference are refused anyway."""

_ShortId = Annotated[
    str, Meta(min_length=SHORT_ID_LENGTH, max_length=SHORT_ID_LENGTH, pattern=r"\A[a-z2-7]+\Z")
]


class _Record(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    format: Literal[1]
    peer: _ShortId
    invite: _ShortId
    wall: Annotated[float, Meta(ge=0, le=2**53)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """That ``admitter`` let ``peer`` in by ``invite`` at ``wall`` (seconds since 1970 UTC, its clock)."""

    peer: PeerId
    invite: InviteId
    wall: float
    admitter: PeerId


def admit(identity: Identity, member: Member, *, now: float) -> bytes:
    """The encoded admission of ``member``, signed by ``identity``, which must have the right ``admit``.

    Whether to admit is decided before: :func:`may_join`, and the count of ``swarm.identity.uses``.
    """
    record = _Record(format=1, peer=member.peer, invite=member.invite, wall=now)
    return seal(identity, ADMISSION, msgspec.msgpack.encode(record))


def check_admission(data: bytes, *, authority: bytes, member: Member, now: float) -> Admission:
    """The admission of ``member`` in ``data``.

    Raises RemoteProtocolError, and nothing else, where it is malformed, for another peer or invite, signed by
    somebody without ``admit``, or dated in the future.
    """
    if len(data) > MAX_ADMISSION_BYTES:
        raise RemoteProtocolError(f"an admission of {len(data)} bytes is over the limit")
    admitter, payload = open_envelope(data, domain=ADMISSION, authority=authority, now=now)
    try:
        record = msgspec.msgpack.decode(payload, type=_Record)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"the admission does not parse: {error}") from None
    if (record.peer, record.invite) != (member.peer, member.invite):
        raise RemoteProtocolError("the admission is for another peer or another invite")
    if not admitter.may(Right.ADMIT):
        raise RemoteProtocolError("the admission is signed by a member that may not admit")
    if not record.wall <= now + SKEW_SECONDS:
        raise RemoteProtocolError("the admission is dated in the future")
    return Admission(peer=member.peer, invite=member.invite, wall=record.wall, admitter=admitter.peer)


def may_join(member: Member, admission: Admission | None, *, now: float) -> bool:
    """Whether ``member``, whose chain has been checked, counts at ``now``.

    Up to the join-by date of its invite everybody does; afterwards who was admitted in time does.
    """
    if not member.join_by or now <= member.join_by:
        return True
    return (
        admission is not None
        and (admission.peer, admission.invite) == (member.peer, member.invite)
        and admission.wall <= member.join_by + GRACE_SECONDS
    )
