import logging
from pathlib import Path

import pytest

from swarm.identity.authority import Authority
from swarm.identity.invite import Invite
from swarm.identity.issued import IssuedInvite, append_issued, read_issued
from swarm.identity.rights import ALL_RIGHTS

DAY = 86_400.0


def record(label: str) -> IssuedInvite:
    return IssuedInvite(
        id="a" * 32, label=label, uses=1, join_by=2, may=("contribute",), public=False, wall=3.5
    )  # type: ignore[arg-type]


def test_record_says_all_about_an_invite_but_its_secrets(invite: Invite, now: float, tmp_path: Path) -> None:
    made = IssuedInvite.of(invite, now=now)
    assert (made.id, made.label, made.uses, made.join_by) == (invite.id, "alice", 1, int(now + 7 * DAY))
    assert (made.rights, made.public, made.wall) == (ALL_RIGHTS, False, now)
    append_issued(tmp_path / "list", made)
    assert read_issued(tmp_path / "list") == [made]


def test_records_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "list"
    assert read_issued(path) == []
    labels = ["one", "zwei \u00fc", "\u4e09"]
    for label in labels:
        append_issued(path, record(label))
    assert [r.label for r in read_issued(path)] == labels
    assert path.read_bytes().count(b"\n") == 3


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_line_cut_short_loses_neither_those_before_nor_those_after(
    tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "list"
    append_issued(path, record("before"))
    append_issued(path, record("cut"))
    path.write_bytes(path.read_bytes()[:-cut])
    append_issued(path, record("after"))
    with caplog.at_level(logging.WARNING):
        labels = [r.label for r in read_issued(path)]
    # Without its line end alone, the record is whole.
    assert labels == (["before", "cut", "after"] if cut == 1 else ["before", "after"])
    assert len(caplog.records) == (0 if cut == 1 else 1)


def test_two_programs_that_issue_at_once_lose_nothing(tmp_path: Path, now: float) -> None:
    Authority.create("lab", public=False, now=now).save(tmp_path / "lab")
    programs = [Authority.load(tmp_path / "lab") for _ in range(2)]
    ids = {program.issue(label="x", now=now).id for program in programs for _ in range(3)}
    assert {record.id for record in Authority.load(tmp_path / "lab").issued} == ids
    assert len(ids) == 6
