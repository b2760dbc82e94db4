from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from swarm.errors import RemoteProtocolError
from swarm.identity.admission import (
    GRACE_SECONDS,
    SKEW_SECONDS,
    Admission,
    admit,
    check_admission,
    may_join,
)
from swarm.identity.authority import Authority
from swarm.identity.envelope import ADMISSION, MANIFEST, seal
from swarm.identity.membership import MAX_ADMISSION_BYTES, Identity
from swarm.identity.rights import ALL_RIGHTS, Right

DAY = 86_400.0


@pytest.fixture
def seed(join: Callable[..., Identity]) -> Identity:
    """A bootstrap node: it may admit."""
    return join(label="seed", rights=frozenset({Right.ADMIT}))


@pytest.fixture
def newcomer(join: Callable[..., Identity], now: float) -> Identity:
    return join(label="new", uses=1, join_by=now + DAY)


def check(data: bytes, newcomer: Identity, *, now: float) -> Admission:
    return check_admission(data, authority=newcomer.authority, member=newcomer.member, now=now)


def test_admission_says_who_let_whom_in_and_when(seed: Identity, newcomer: Identity, now: float) -> None:
    data = admit(seed, newcomer.member, now=now + 5)
    assert check(data, newcomer, now=now + 6) == Admission(
        peer=newcomer.peer, invite=newcomer.invite.id, wall=now + 5, admitter=seed.peer
    )
    assert len(data) < MAX_ADMISSION_BYTES / 2


def test_admission_outlives_the_leaf_of_its_admitter(seed: Identity, newcomer: Identity, now: float) -> None:
    assert check(admit(seed, newcomer.member, now=now), newcomer, now=now + 5 * 365 * DAY).wall == now


def test_admission_of_somebody_else_is_refused(
    seed: Identity, newcomer: Identity, join: Callable[..., Identity], authority: Authority, now: float
) -> None:
    other_peer = admit(seed, join().member, now=now)
    again = newcomer.with_invite(authority.issue(label="again", now=now), now=now)
    other_invite = admit(seed, again.member, now=now)
    for data in (other_peer, other_invite):
        with pytest.raises(RemoteProtocolError, match="another peer or another invite"):
            check(data, newcomer, now=now)


def test_admission_by_a_member_that_may_not_admit_is_refused(
    newcomer: Identity, join: Callable[..., Identity], now: float
) -> None:
    friend = join(rights=ALL_RIGHTS - {Right.ADMIT})
    for signer in (friend, newcomer):
        with pytest.raises(RemoteProtocolError, match="may not admit"):
            check(admit(signer, newcomer.member, now=now), newcomer, now=now)


def test_admission_by_another_swarm_is_refused(
    newcomer: Identity, join: Callable[..., Identity], now: float
) -> None:
    stranger = join(of=Authority.create("lab", public=False, now=now), rights=ALL_RIGHTS)
    with pytest.raises(RemoteProtocolError, match="signer of the admission is not known"):
        check(admit(stranger, newcomer.member, now=now), newcomer, now=now)


def test_admission_from_the_future_is_refused_beyond_what_clocks_differ(
    seed: Identity, newcomer: Identity, now: float
) -> None:
    check(admit(seed, newcomer.member, now=now + SKEW_SECONDS), newcomer, now=now)
    with pytest.raises(RemoteProtocolError, match="future"):
        check(admit(seed, newcomer.member, now=now + SKEW_SECONDS + 1), newcomer, now=now)


def payloads(newcomer: Identity, now: float) -> list[Any]:
    peer, invite = newcomer.peer, newcomer.invite.id
    return [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([2, peer, invite, now]),
        msgspec.msgpack.encode([1, peer, invite]),
        msgspec.msgpack.encode([1, peer, invite, now, 0]),
        msgspec.msgpack.encode([1, peer.upper(), invite, now]),
        msgspec.msgpack.encode([1, peer, invite, float("nan")]),
        msgspec.msgpack.encode([1, peer, invite, -1.0]),
        msgspec.msgpack.encode([1, peer, invite, "now"]),
    ]


def test_other_payloads_and_domains_are_refused(seed: Identity, newcomer: Identity, now: float) -> None:
    for payload in payloads(newcomer, now):
        with pytest.raises(RemoteProtocolError, match="does not parse"):
            check(seal(seed, ADMISSION, payload), newcomer, now=now)
    good = msgspec.msgpack.encode([1, newcomer.peer, newcomer.invite.id, now])
    check(seal(seed, ADMISSION, good), newcomer, now=now)
    with pytest.raises(RemoteProtocolError, match="signed as manifest"):
        check(seal(seed, MANIFEST, good), newcomer, now=now)
    with pytest.raises(RemoteProtocolError, match="over the limit"):
        check(b"\0" * (MAX_ADMISSION_BYTES + 1), newcomer, now=now)


# Who counts when.


@pytest.fixture
def admission(newcomer: Identity, seed: Identity, now: float) -> Admission:
    return Admission(peer=newcomer.peer, invite=newcomer.invite.id, wall=now, admitter=seed.peer)


def test_up_to_the_date_everybody_may_join_and_then_only_the_admitted(
    newcomer: Identity, admission: Admission, now: float
) -> None:
    assert may_join(newcomer.member, None, now=now + DAY)
    assert not may_join(newcomer.member, None, now=now + DAY + 1)
    assert may_join(newcomer.member, admission, now=now + 1000 * DAY)


def test_invite_without_a_date_lets_join_for_ever(join: Callable[..., Identity], now: float) -> None:
    assert may_join(join().member, None, now=now + 1000 * DAY)


@pytest.mark.parametrize(("late", "counts"), [(0, True), (GRACE_SECONDS, True), (GRACE_SECONDS + 1, False)])
def test_admission_counts_up_to_a_minute_after_the_date(
    newcomer: Identity, admission: Admission, seed: Identity, now: float, late: int, counts: bool
) -> None:
    data = admit(seed, newcomer.member, now=now + DAY + late)
    later = now + 10 * DAY
    assert may_join(newcomer.member, check(data, newcomer, now=later), now=later) is counts


def test_admission_of_another_does_not_help(
    newcomer: Identity, join: Callable[..., Identity], admission: Admission, now: float
) -> None:
    other = join(label="other", join_by=now + DAY)
    assert not may_join(other.member, admission, now=now + 2 * DAY)
