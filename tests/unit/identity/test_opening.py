from pathlib import Path

import pytest

from swarm.errors import FailureError, MisuseError
from swarm.identity.admission import check_admission, may_join
from swarm.identity.authority import Authority
from swarm.identity.invite import Invite
from swarm.identity.membership import Identity
from swarm.identity.opening import open_identity
from swarm.identity.rights import Right

DAY = 86_400.0


@pytest.fixture
def plain(authority: Authority, now: float) -> Invite:
    return authority.issue(label="plain", uses=1, join_by=now + DAY, now=now)


def test_first_start_joins_and_later_ones_need_no_invite(plain: Invite, tmp_path: Path, now: float) -> None:
    home = tmp_path / "peer"
    first = open_identity(home, invite=plain, now=now)
    assert open_identity(home, invite=None, now=now + 1) == first
    assert open_identity(home, invite=plain, now=now + 1) == first
    assert open_identity(home, invite=plain, now=now + 50 * DAY) == first


def test_first_start_without_an_invite_says_so_and_makes_nothing(tmp_path: Path, now: float) -> None:
    with pytest.raises(MisuseError, match="--invite"):
        open_identity(tmp_path / "peer", invite=None, now=now)
    assert list(tmp_path.iterdir()) == []


def test_first_start_with_an_expired_invite_makes_nothing(plain: Invite, tmp_path: Path, now: float) -> None:
    with pytest.raises(MisuseError, match="expired"):
        open_identity(tmp_path / "peer", invite=plain, now=now + 2 * DAY)
    assert list(tmp_path.iterdir()) == []


def test_interrupted_first_join_is_finished_under_the_same_key(
    plain: Invite, tmp_path: Path, now: float
) -> None:
    first = open_identity(tmp_path, invite=plain, now=now)
    (tmp_path / "identity.json").unlink()
    assert open_identity(tmp_path, invite=plain, now=now).peer == first.peer


def test_renewed_leaf_is_on_disk(plain: Invite, tmp_path: Path, now: float) -> None:
    first = open_identity(tmp_path, invite=plain, now=now)
    second = open_identity(tmp_path, invite=None, now=now + 300 * DAY)
    assert second.leaf != first.leaf
    assert Identity.load(tmp_path) == second


def test_another_invite_takes_over_and_another_swarm_does_not(
    plain: Invite, authority: Authority, tmp_path: Path, now: float
) -> None:
    first = open_identity(tmp_path, invite=plain, now=now)
    better = authority.issue(label="plain", rights=frozenset({Right.TRAIN}), now=now)
    second = open_identity(tmp_path, invite=better, now=now)
    assert (second.peer, second.member.invite) == (first.peer, better.id)
    assert Identity.load(tmp_path) == second
    other = Authority.create("garage", public=False, now=now).issue(label="x", now=now)
    with pytest.raises(MisuseError, match="garage"):
        open_identity(tmp_path, invite=other, now=now)
    assert Identity.load(tmp_path) == second


def test_damaged_home_is_named_even_with_an_invite(plain: Invite, tmp_path: Path, now: float) -> None:
    open_identity(tmp_path, invite=plain, now=now)
    (tmp_path / "identity.json").write_text("{")
    with pytest.raises(FailureError, match="damaged"):
        open_identity(tmp_path, invite=plain, now=now)


def test_peer_that_may_admit_admits_itself_in_time(
    authority: Authority, plain: Invite, tmp_path: Path, now: float
) -> None:
    rights = frozenset({Right.ADMIT})
    invite = authority.issue(label="seed", join_by=now + DAY, rights=rights, now=now)
    seed = open_identity(tmp_path / "seed", invite=invite, now=now)
    late = now + 30 * DAY
    admission = check_admission(seed.admission, authority=seed.authority, member=seed.member, now=late)
    assert admission.admitter == seed.peer
    assert may_join(seed.member, admission, now=late)
    assert open_identity(tmp_path / "seed", invite=None, now=now + 60) == seed
    assert open_identity(tmp_path / "peer", invite=plain, now=now).admission == b""
