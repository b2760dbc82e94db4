import errno
import json
import os
from pathlib import Path

import pytest

from swarm.errors import FailureError, MisuseError
from swarm.identity.authority import Authority
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey, save_key
from swarm.identity.rights import ALL_RIGHTS, CONTRIBUTE_ONLY, Right

DAY = 86_400.0


def same(left: Authority, right: Authority) -> bool:
    names = ("swarm", "name", "certificate", "door_key", "public", "issued")
    return all(getattr(left, name) == getattr(right, name) for name in names)


def test_saved_authority_loads_and_goes_on_issuing(authority: Authority, tmp_path: Path, now: float) -> None:
    folder = tmp_path / "authorities" / "lab"
    before = authority.issue(label="before saving", now=now)
    authority.save(folder)
    loaded = Authority.load(folder)
    assert same(loaded, authority)
    after = loaded.issue(label="after loading", now=now)
    assert Invite.decode(after.encode()).swarm == authority.swarm == before.swarm
    assert [record.label for record in Authority.load(folder).issued] == ["before saving", "after loading"]


def test_secrets_are_for_their_owner_alone(authority: Authority, tmp_path: Path, now: float) -> None:
    folder = tmp_path / "lab"
    authority.save(folder)
    authority.issue(label="x", now=now)
    assert {path.name for path in folder.iterdir()} == {"authority.json", "invites.jsonl", "key.pem"}
    if os.name == "posix":
        assert folder.stat().st_mode & 0o077 == 0
        assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


def test_nothing_is_ever_overwritten(authority: Authority, tmp_path: Path, now: float) -> None:
    authority.save(tmp_path / "lab")
    with pytest.raises(MisuseError, match="already"):
        Authority.create("lab", public=False, now=now).save(tmp_path / "lab")
    assert same(Authority.load(tmp_path / "lab"), authority)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MisuseError, match="already"):
        authority.save(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    authority.save(tmp_path / "empty")
    assert same(Authority.load(tmp_path / "empty"), authority)


def test_failed_save_leaves_nothing(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FailureError, match="No space left on device"):
        authority.save(tmp_path / "lab")
    assert list(tmp_path.iterdir()) == []


def test_authority_that_cannot_be_moved_to_its_place_leaves_nothing(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "rename", denied)
    with pytest.raises(FailureError, match=r"cannot write the authority to .*lab: Permission denied"):
        authority.save(tmp_path / "lab")
    assert list(tmp_path.iterdir()) == []


def test_missing_authority_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(MisuseError, match="swarm create NAME"):
        Authority.load(tmp_path / "lab")


@pytest.mark.parametrize("damage", ["{", "{}", '{"format": 2}', "[]", "\x00"])
def test_damaged_authority_is_named(authority: Authority, tmp_path: Path, damage: str) -> None:
    authority.save(tmp_path / "lab")
    (tmp_path / "lab" / "authority.json").write_text(damage)
    with pytest.raises(FailureError, match=r"the authority in .*lab is damaged"):
        Authority.load(tmp_path / "lab")


def test_damaged_certificate_lost_key_and_other_key_are_named(authority: Authority, tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    authority.save(folder)
    save_key(folder / "key.pem", PrivateKey.generate())
    with pytest.raises(FailureError, match="do not belong together"):
        Authority.load(folder)
    (folder / "key.pem").unlink()
    with pytest.raises(FailureError, match=r"cannot read .*key\.pem"):
        Authority.load(folder)
    state = json.loads((folder / "authority.json").read_text())
    (folder / "authority.json").write_text(json.dumps(state | {"certificate": "AAAA"}))
    save_key(folder / "key.pem", authority._key)
    with pytest.raises(FailureError, match="damaged"):
        Authority.load(folder)


@pytest.mark.parametrize("name", ["", "two words", "../lab", "x" * 65, "lab\n"])
def test_impossible_name_is_refused_with_what_is_possible(name: str, now: float) -> None:
    with pytest.raises(MisuseError, match="use letters and digits"):
        Authority.create(name, public=False, now=now)


def test_printed_authority_shows_no_secret(authority: Authority) -> None:
    assert repr(authority.door_key)[2:-1] not in repr(authority)
    assert "lab" in repr(authority)


# Issuing.


def test_two_invites_share_the_door_key_and_nothing_else(authority: Authority, now: float) -> None:
    one, two = (authority.issue(label="same", now=now) for _ in range(2))
    assert one.door_key == two.door_key
    assert one.id != two.id
    assert one.delegate_key != two.delegate_key


def test_contribute_is_in_every_invite(authority: Authority, now: float) -> None:
    assert authority.issue(label="x", rights=frozenset(), now=now).rights == CONTRIBUTE_ONLY
    assert authority.issue(label="x", rights=frozenset({Right.TRAIN}), now=now).rights == {
        Right.CONTRIBUTE,
        Right.TRAIN,
    }


def test_invite_of_a_public_swarm_without_a_label_is_for_strangers_and_carries_contribute_only(
    now: float,
) -> None:
    authority = Authority.create("commons", public=True, now=now)
    assert authority.issue(label="", now=now).public
    with pytest.raises(MisuseError, match=r"contribute only.*--label"):
        authority.issue(label="", rights=ALL_RIGHTS, now=now)
    own = authority.issue(label="organiser", rights=ALL_RIGHTS, now=now)
    assert (own.public, own.rights) == (False, ALL_RIGHTS)
    assert len(authority.issued) == 2


def test_invite_of_a_private_swarm_is_never_for_strangers(authority: Authority, now: float) -> None:
    assert not authority.issue(label="", rights=ALL_RIGHTS, now=now).public


def test_date_that_has_passed_is_refused(authority: Authority, now: float) -> None:
    with pytest.raises(MisuseError, match="expired"):
        authority.issue(label="late", join_by=now - 60, now=now)
    assert authority.issued == ()


def test_invite_that_could_not_be_put_on_record_is_not_given_out(
    authority: Authority, tmp_path: Path, now: float
) -> None:
    authority.save(tmp_path / "lab")
    (tmp_path / "lab" / "invites.jsonl").mkdir()
    with pytest.raises(FailureError, match=r"cannot write .*invites\.jsonl"):
        authority.issue(label="x", now=now)
    assert authority.issued == ()
