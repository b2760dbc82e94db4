"""Who may come in: the judgement of a hello, and what the accepted one is given (decisions D1, D2)."""

import math
from dataclasses import dataclass
from typing import Final, get_args

from swarm.errors import LocalError, RemoteProtocolError, RemoteRefusalError
from swarm.identity.admission import Admission, admit, check_admission, may_join
from swarm.identity.chain import Member, check_chain, show_time
from swarm.identity.door import check_door, door_proof, first_epoch_key
from swarm.identity.membership import Identity
from swarm.identity.revocations import Revocations
from swarm.identity.rights import Right
from swarm.identity.uses import UseLedger
from swarm.ids import PeerId, short
from swarm.protocol.newcomers import Newcomers, prefix_of
from swarm.protocol.trust import Trust
from swarm.wire.messages.hello import (
    OLDEST_RELEASE,
    OLDEST_VERSION,
    PROTOCOL_VERSION,
    Accept,
    Capabilities,
    Hello,
    RefusalCode,
    RevocationNews,
    Role,
)

MAX_CLOCK_SKEW_SECONDS: Final = 600.0
"""Clocks may differ by this much. Invites, admissions, records and datagrams are dated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What this peer's hellos say of it beside its identity. ``boot`` names this run of the program."""

    role: Role
    program: str
    capabilities: Capabilities
    boot: bytes
    """Eight random bytes."""
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Epoch:
    """The current DHT key (decision D2)."""

    number: int
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A good hello: who it is, and the answer. ``counted`` says that the ledger of uses has changed."""

    member: Member
    accept: Accept
    counted: bool


class Reception:
    """What this peer says in hellos, and needs to judge those of others."""

    def __init__(self, identity: Identity, *, profile: Profile, ledger: UseLedger) -> None:
        self.identity = identity
        self.profile = profile
        self.ledger = ledger
        self.revocations = Revocations(identity.authority)
        self.trust = Trust()
        self._newcomers = Newcomers()

    @property
    def epoch(self) -> Epoch:
        """The newest DHT key that is known."""
        known = self.revocations
        if known.epoch:
            return Epoch(number=known.epoch, key=known.epoch_key)
        return Epoch(number=0, key=first_epoch_key(self.identity.door_key))

    def introduce(self, peer: PeerId, *, now: float) -> Hello:
        """The hello to ``peer``; ``now`` in wall seconds."""
        identity, profile = self.identity, self.profile
        return Hello(
            oldest=OLDEST_VERSION,
            newest=PROTOCOL_VERSION,
            program=profile.program,
            swarm=identity.swarm,
            role=profile.role,
            chain=identity.chain,
            admission=identity.admission,
            door=door_proof(identity.door_key, prover=identity.peer, verifier=peer),
            boot=profile.boot,
            wall=now,
            revocations=self.revocations.digest,
            addresses=profile.addresses,
            capabilities=profile.capabilities,
        )

    def judge(self, hello: Hello, *, leaf: bytes, observed: str, now: float) -> Verdict:
        """The verdict on ``hello`` from the peer whose TLS certificate is ``leaf`` (DER).

        ``observed`` is the address it was seen from, ``now`` in wall seconds. Raises RemoteRefusalError with
        the code and the sentence of the refusal.
        """
        member = judge_hello(
            hello,
            identity=self.identity,
            program=self.profile.program,
            revocations=self.revocations,
            leaf=leaf,
            now=now,
        )
        banned = self.trust.sentence(member.peer, wall=now)
        if banned:
            raise RemoteRefusalError("banned", banned)
        admission, counted = self._admission(member, hello, observed, now)
        accept = Accept(
            version=min(hello.newest, PROTOCOL_VERSION),
            observed=observed,
            admission=admission,
        )
        return Verdict(member=member, accept=accept, counted=counted)

    def welcomed(self, accept: Accept, *, now: float) -> bool:
        """Take the admission that another member's ``accept`` brings; returns whether the identity changed.

        Raises RemoteProtocolError where it brings one that does not hold.
        """
        identity = self.identity
        if not accept.admission or identity.admission:
            return False
        check_admission(accept.admission, authority=identity.authority, member=identity.member, now=now)
        self.identity = identity.with_admission(accept.admission)
        return True

    def _admission(self, member: Member, hello: Hello, observed: str, now: float) -> tuple[bytes, bool]:
        """A new admission for ``member`` where it has none and we may give one, and whether a use counted."""
        if hello.admission:
            return b"", self.ledger.learn(member)
        if self.identity.member.may(Right.ADMIT):
            if member.public:
                self._let_in_stranger(observed, now)
            counted = self.ledger.use(member)
            return admit(self.identity, member, now=now), counted
        if member.uses or member.public:
            what = "your invite counts its uses" if member.uses else "your invite is for strangers"
            raise RemoteRefusalError(
                "right-missing", f"{what}, so a bootstrap node of the swarm has to admit you first"
            )
        return b"", False

    def _let_in_stranger(self, observed: str, now: float) -> None:
        wait = self._newcomers.enter(observed, now=now)
        if wait:
            raise RemoteRefusalError(
                "busy",
                f"too many have joined from {prefix_of(observed)} lately: try again in {_duration(wait)}",
            )

    def news_for(self, hello: Hello, member: Member) -> RevocationNews | None:
        """What ``member``, who said ``hello``, has to be sent of revocations; None where it knows all."""
        if hello.revocations == self.revocations.digest or not self.revocations.lists:
            return None
        return self.news(hello, member)

    def news(self, hello: Hello, member: Member) -> RevocationNews:
        """All that is known of revocations, for ``member``, who said ``hello``."""
        key = self.revocations.epoch_key if self._knocks(hello, member) else b""
        return RevocationNews(lists=self.revocations.lists, epoch_key=key)

    def _knocks(self, hello: Hello, member: Member) -> bool:
        identity = self.identity
        return check_door(identity.door_key, hello.door, prover=member.peer, verifier=identity.peer)


def judge_hello(
    hello: Hello, *, identity: Identity, program: str, revocations: Revocations, leaf: bytes, now: float
) -> Member:
    """The member that ``hello`` introduces to ``identity``, which runs ``program`` (name and version).

    ``leaf`` is the certificate that TLS has seen.

    ``now`` in wall seconds. Raises RemoteRefusalError, whose sentence is addressed to the other side and
    says what it can do.
    """
    if hello.swarm != identity.swarm:
        raise RemoteRefusalError(
            "wrong-swarm",
            f"your invite is of the swarm {short(hello.swarm)}, and this is {identity.name} "
            f"({short(identity.swarm)})",
        )
    _check_version(hello, mine=program)
    _check_clock(hello.wall, now)
    if hello.chain[1] != leaf:
        raise RemoteRefusalError("bad-certificate", "your hello has another certificate than your connection")
    member = check_chain(hello.chain, identity.authority, now=now)
    revoked = revocations.sentence(member)
    if revoked:
        raise RemoteRefusalError("revoked", f"{revoked}: ask them why, and for a new invite")
    admission = _admission_of(hello, member, identity, now)
    if not may_join(member, admission, now=now):
        raise RemoteRefusalError(
            "invite-expired",
            f"your invite had to be used by {show_time(member.join_by)}: ask the organiser for a new one",
        )
    return member


def refusal_code(code: str) -> RefusalCode:
    """``code`` as the wire has it; raises LocalError for one that it does not have."""
    for known in get_args(RefusalCode):
        if code == known:
            return known  # type: ignore[no-any-return]
    raise LocalError(f"there is no refusal code {code!r}")


def _check_version(hello: Hello, *, mine: str) -> None:
    if hello.newest < OLDEST_VERSION:
        raise RemoteRefusalError(
            "version",
            f"you have {hello.program}, this swarm needs {OLDEST_RELEASE} or later: "
            "pip install -U fusion-swarm",
        )
    if hello.oldest > PROTOCOL_VERSION:
        raise RemoteRefusalError(
            "version",
            f"you have {hello.program}, and I have {mine}, which is too old for it: "
            "whoever runs me has to pip install -U fusion-swarm",
        )
    if hello.oldest > hello.newest:
        raise RemoteRefusalError("protocol", "your hello has an oldest version above the newest")


def _check_clock(wall: float, now: float) -> None:
    if not math.isfinite(wall):
        raise RemoteRefusalError("clock", "your clock shows no time at all: set it")
    ahead = wall - now
    if abs(ahead) > MAX_CLOCK_SKEW_SECONDS:
        raise RemoteRefusalError(
            "clock",
            f"your clock is {_duration(abs(ahead))} {'ahead of' if ahead > 0 else 'behind'} mine, which says "
            f"{show_time(now)}: set the one that is wrong",
        )


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _admission_of(hello: Hello, member: Member, identity: Identity, now: float) -> Admission | None:
    if not hello.admission:
        return None
    try:
        return check_admission(hello.admission, authority=identity.authority, member=member, now=now)
    except RemoteProtocolError as error:
        raise RemoteRefusalError("bad-certificate", f"your admission does not hold: {error}") from None
