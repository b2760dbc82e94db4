"""Whether what gossip brings of a member counts: by certificates, admission and revocations (D1, D9)."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from swarm.errors import RemoteProtocolError, RemoteRefusalError
from swarm.identity.admission import SKEW_SECONDS, Admission, check_admission, may_join
from swarm.identity.chain import Member, check_chain
from swarm.protocol.welcome import Reception
from swarm.wire.records.member import (
    MemberRecord,
    credentials_name,
    decode_credentials,
    decode_member,
    member_key,
    version_of,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A record under the signature of its peer, of whom it is not known whether it is a member."""

    key: bytes
    version: int
    record: MemberRecord
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, record: MemberRecord, data: bytes) -> "Claim":
        """The claim that ``data`` makes, which is the encoded ``record``."""
        return cls(key=member_key(record.peer), version=version_of(record, data), record=record, data=data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Papers:
    """Credentials that have been checked. ``name`` is what records call them."""

    name: bytes
    data: bytes = field(repr=False)
    member: Member
    admitted: float
    """When the admission among them was given (wall); infinite where there is none."""

    @property
    def counts(self) -> bool:
        """Whether they show that a use of a counted invite is taken."""
        return math.isfinite(self.admitted) and self.member.uses > 0


class Judge(Protocol):
    """What a node believes."""

    def claim(self, data: bytes) -> Claim:
        """The record in ``data``; raises RemoteProtocolError where whoever sent it should have refused it."""
        ...

    def papers(self, data: bytes, *, now: float) -> Papers | None:
        """The credentials in ``data`` at ``now`` (wall); None where they do not count here and now.

        Raises RemoteProtocolError where they never did.
        """
        ...

    def is_out(self, member: Member) -> bool:
        """Whether ``member`` was revoked."""
        ...


def _holds(check: Callable[..., Admission], *, now: float) -> bool:
    """Whether somebody with the time ``now`` may have taken an admission for good, and passed it on."""
    try:
        check(now=now)
    except RemoteProtocolError:
        return False
    return True


class MemberJudge:
    """The judge of a node: as its :class:`Reception` judges hellos."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception

    def claim(self, data: bytes) -> Claim:
        """See :class:`Judge`."""
        record = decode_member(data)
        if record.swarm != self._reception.identity.swarm:
            raise RemoteProtocolError("a member record is of another swarm")
        return Claim.of(record, data)

    def papers(self, data: bytes, *, now: float) -> Papers | None:
        """See :class:`Judge`. Clocks differ, so what depends on the date is nobody's fault."""
        credentials, authority = decode_credentials(data), self._reception.identity.authority
        try:
            member = check_chain(credentials.chain, authority, now=now)
        except RemoteRefusalError as error:
            if error.code == "clock":
                return None
            raise RemoteProtocolError(f"the credentials of a member do not hold: {error}") from None
        admission, admitted = None, math.inf
        if credentials.admission:
            check = partial(check_admission, credentials.admission, authority=authority, member=member)
            try:
                admission = check(now=now)
            except RemoteProtocolError:
                if not any(_holds(check, now=now + skew) for skew in (SKEW_SECONDS, -SKEW_SECONDS)):
                    raise
                return None
            admitted = admission.wall
        if not may_join(member, admission, now=now) or self.is_out(member):
            return None
        return Papers(name=credentials_name(data), data=data, member=member, admitted=admitted)

    def is_out(self, member: Member) -> bool:
        """See :class:`Judge`."""
        return bool(self._reception.revocations.sentence(member))
