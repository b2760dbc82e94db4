import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from swarm.errors import FailureError, MisuseError
from swarm.identity.authority import Authority
from swarm.identity.chain import check_chain
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import CONTRIBUTE_ONLY

DAY = 86_400.0


def test_joined_peer_knows_who_and_where_it_is(alice: Identity, invite: Invite, now: float) -> None:
    assert (alice.swarm, alice.name) == (invite.swarm, "lab")
    assert alice.authority == invite.authority
    assert alice.chain == (invite.delegate, alice.leaf)
    assert alice.door_key == invite.door_key
    assert alice.addresses == invite.addresses
    assert alice.peer == alice.key.peer == alice.member.peer
    assert alice.admission == b""
    assert check_chain(alice.chain, alice.authority, now=now) == alice.member


def test_joining_by_an_expired_invite_is_refused(invite: Invite, now: float) -> None:
    with pytest.raises(MisuseError, match="the invite expired"):
        Identity.join(invite, key=PrivateKey.generate(), now=now + 8 * DAY)


def test_two_peers_join_by_one_invite_while_the_organiser_is_away(authority: Authority, now: float) -> None:
    invite = Invite.decode(authority.issue(label="both", uses=2, now=now).encode())
    one, two = (Identity.join(invite, key=PrivateKey.generate(), now=now) for _ in range(2))
    assert one.peer != two.peer
    assert one.member.invite == two.member.invite


def test_printed_identity_shows_no_secret(alice: Identity) -> None:
    for secret in (alice.key.raw, alice.door_key, alice.invite.delegate_key):
        assert repr(secret)[2:-1] not in repr(alice)


def test_saved_identity_loads_and_is_for_its_owner_alone(alice: Identity, tmp_path: Path) -> None:
    folder = tmp_path / "home" / "peer"
    admitted = alice.with_admission(b"admission")
    alice.save(folder)
    admitted.save(folder)
    assert Identity.load(folder) == admitted
    admitted.tls_files(folder)
    if os.name == "posix":
        assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_home_of_another_peer_is_never_overwritten(
    alice: Identity, join: Callable[..., Identity], tmp_path: Path
) -> None:
    alice.save(tmp_path)
    with pytest.raises(MisuseError, match="belongs to another peer"):
        join().save(tmp_path)
    assert Identity.load(tmp_path) == alice


@pytest.mark.parametrize(
    "damage", ["{", "{}", "[]", "\x00", '{"format": 1, "invite": "", "leaf": "", "admission": ""}']
)
def test_damaged_identity_is_named(alice: Identity, tmp_path: Path, damage: str) -> None:
    alice.save(tmp_path)
    (tmp_path / "identity.json").write_text(damage)
    with pytest.raises(FailureError, match=r"identity\.json is damaged .*join again"):
        Identity.load(tmp_path)


def test_identity_of_another_key_or_another_leaf_is_damaged(
    alice: Identity, join: Callable[..., Identity], tmp_path: Path
) -> None:
    other = join()
    alice.save(tmp_path / "alice")
    other.save(tmp_path / "other")
    state = json.loads((tmp_path / "alice" / "identity.json").read_text())
    theirs = json.loads((tmp_path / "other" / "identity.json").read_text())
    for part in ("invite", "leaf"):
        (tmp_path / "alice" / "identity.json").write_text(json.dumps(state | {part: theirs[part]}))
        with pytest.raises(FailureError, match="damaged"):
            Identity.load(tmp_path / "alice")
    (tmp_path / "other" / "key.pem").replace(tmp_path / "alice" / "key.pem")
    (tmp_path / "alice" / "identity.json").write_text(json.dumps(state))
    with pytest.raises(FailureError, match="another key"):
        Identity.load(tmp_path / "alice")


def test_missing_identity_says_to_join(tmp_path: Path) -> None:
    with pytest.raises(FailureError, match="--invite"):
        Identity.load(tmp_path)


def test_parts_that_do_not_belong_together_make_no_identity(
    alice: Identity, join: Callable[..., Identity]
) -> None:
    other = join()
    with pytest.raises(MisuseError):
        replace(alice, leaf=other.leaf)
    with pytest.raises(MisuseError):
        replace(alice, key=other.key)
    with pytest.raises(MisuseError):
        replace(alice, invite=other.invite)


# Renewal.


@pytest.mark.parametrize("days", [-1, 0, 100, 182])
def test_leaf_with_half_its_life_before_it_is_kept(alice: Identity, now: float, days: int) -> None:
    assert alice.renewed(now=now + days * DAY) is alice


@pytest.mark.parametrize("days", [-800, -366, 183, 365, 3000])
def test_old_leaf_and_one_from_the_future_are_replaced(alice: Identity, now: float, days: int) -> None:
    later = now + days * DAY
    renewed = alice.renewed(now=later)
    assert renewed.leaf != alice.leaf
    assert renewed.member == alice.member
    assert renewed.renewed(now=later) is renewed
    if days > 0:
        assert check_chain(renewed.chain, renewed.authority, now=later) == alice.member


# Another invite.


def test_other_invite_of_the_swarm_keeps_the_key_and_changes_the_standing(
    alice: Identity, authority: Authority, now: float
) -> None:
    later = authority.issue(label="alice again", rights=CONTRIBUTE_ONLY, now=now)
    changed = alice.with_admission(b"for the old invite").with_invite(later, now=now)
    assert changed.peer == alice.peer
    assert changed.member.invite == later.id
    assert changed.member.rights == CONTRIBUTE_ONLY
    assert changed.admission == b""


def test_same_invite_with_other_addresses_changes_them_alone_even_after_its_date(
    alice: Identity, invite: Invite, now: float
) -> None:
    admitted = alice.with_admission(b"mine")
    late = now + 100 * DAY
    moved = admitted.with_invite(invite.with_addresses(("new.example:1",)), now=late)
    assert moved.addresses == ("new.example:1",)
    assert (moved.leaf, moved.admission) == (admitted.leaf, admitted.admission)
    assert admitted.with_invite(invite.with_addresses(()), now=late) == admitted
    assert admitted.with_invite(invite, now=late) == admitted


def test_expired_other_invite_and_one_of_another_swarm_are_refused(
    alice: Identity, authority: Authority, now: float
) -> None:
    expired = authority.issue(label="x", join_by=now + 60, now=now)
    with pytest.raises(MisuseError, match="expired"):
        alice.with_invite(expired, now=now + 120)
    other = Authority.create("garage", public=False, now=now)
    with pytest.raises(MisuseError, match=r"for the swarm garage \(.*this home is in lab \(.*--name"):
        alice.with_invite(other.issue(label="x", now=now), now=now)
