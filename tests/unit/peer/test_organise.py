"""Creating a swarm and inviting people, through the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from bootstrap.commandline import run_program
from peer.main import app
from swarm.clock import wall
from swarm.identity.authority import Authority
from swarm.identity.invite import Invite
from swarm.identity.rights import ALL_RIGHTS, CONTRIBUTE_ONLY, Right


class Shell:
    """Runs ``swarm`` commands in one home and keeps what they said."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys
        self.out = self.err = ""

    def run(self, *arguments: str) -> int:
        status = run_program(app, "swarm", [*arguments, "--home", str(self.home)])
        self.out, self.err = self._capsys.readouterr()
        return status

    def json(self, *arguments: str) -> Any:
        assert self.run(*arguments, "--json") == 0
        return json.loads(self.out)


@pytest.fixture
def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(tmp_path, capsys)


def test_create_prints_nothing_but_the_organisers_invite_on_stdout(shell: Shell) -> None:
    assert shell.run("create", "lab") == 0
    [line] = shell.out.splitlines()
    invite = Invite.decode(line)
    assert (invite.name, invite.rights, invite.uses, invite.join_by) == ("lab", ALL_RIGHTS, 0, 0)
    authority = Authority.load(shell.home / "authorities" / "lab")
    assert authority.swarm == invite.swarm
    assert [record.id for record in authority.issued] == [invite.id]
    assert "keep a copy" in shell.err


def test_create_as_json_has_the_promised_keys(shell: Shell) -> None:
    document = shell.json("create", "lab", "--bootstrap", "swarm.example.org", "--bootstrap", "[::1]:9")
    assert {"swarm", "name", "invite"} <= set(document)
    assert "public_invite" not in document
    invite = Invite.decode(document["invite"])
    assert (invite.swarm, invite.name) == (document["swarm"], document["name"])
    assert invite.addresses == ("swarm.example.org:7423", "[::1]:9")


def test_a_public_swarm_also_has_an_invite_for_strangers(shell: Shell) -> None:
    document = shell.json("create", "open", "--public")
    own, public = Invite.decode(document["invite"]), Invite.decode(document["public_invite"])
    assert own.rights == ALL_RIGHTS
    assert (public.rights, public.public) == (CONTRIBUTE_ONLY, True)
    assert shell.run("create", "open2", "--public") == 0
    assert len(shell.out.splitlines()) == 2


@pytest.mark.parametrize("name", ["a/b", "..", "", "con", "x" * 64, "a b"])
def test_a_bad_name_makes_nothing(shell: Shell, name: str) -> None:
    assert shell.run("create", name) == 2
    assert shell.err.count("\n") == 1
    assert shell.out == ""
    assert not list(shell.home.rglob("*"))


def test_too_many_addresses_make_nothing(shell: Shell) -> None:
    addresses = [word for number in range(9) for word in ("--bootstrap", f"n{number}.example")]
    assert shell.run("create", "lab", *addresses) == 2
    assert not list(shell.home.rglob("*"))


def test_a_swarm_is_never_overwritten(shell: Shell) -> None:
    shell.run("create", "lab")
    before = {path: path.read_bytes() for path in shell.home.rglob("*") if path.is_file()}
    assert shell.run("create", "lab") == 2
    assert "choose another name" in shell.err
    assert {path: path.read_bytes() for path in shell.home.rglob("*") if path.is_file()} == before


def test_an_invite_is_what_was_asked_for(shell: Shell) -> None:
    shell.run("create", "lab", "--bootstrap", "first.example:1")
    before = wall()
    options = "--label Ann --uses 1 --expires 12h --may train --bootstrap second.example:2"
    document = shell.json("invite", "lab", *options.split())
    invite = Invite.decode(document["invite"])
    assert (invite.label, invite.uses) == ("Ann", 1)
    assert invite.rights == {Right.CONTRIBUTE, Right.TRAIN}
    assert abs(invite.join_by - before - 12 * 3600) < 60
    assert invite.addresses == ("second.example:2", "first.example:1")
    assert document["id"] == invite.id


def test_an_invite_ends_after_a_week_unless_told_otherwise(shell: Shell) -> None:
    shell.run("create", "lab")
    assert shell.run("invite", "lab", "--label", "Ann") == 0
    [line] = shell.out.splitlines()
    assert abs(Invite.decode(line).join_by - wall() - 7 * 86400) < 60
    assert "--bootstrap" in shell.err, "it says that no address is known"
    assert shell.run("invite", "lab", "--label", "Ann", "--expires", "never") == 0
    assert Invite.decode(shell.out).join_by == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("invite",), "NAME"),
        (("invite", "other"), "make one with swarm create"),
        (("invite", "lab", "--may", "everything"), "train, admit, organise"),
        (("invite", "lab", "--uses", "-1"), "--uses"),
        (("invite", "lab", "--uses", "many"), "--uses"),
        (("invite", "lab", "--expires", "soon"), "write 7d, 12h"),
        (("invite", "lab", "--expires", "0d"), "would let nobody in"),
        (("invite", "lab", "--label", "x" * 200), "label"),
        (("invite", "lab", "--bootstrap", ":7423"), "write HOST:PORT"),
        (("create",), "NAME"),
    ],
)
def test_misuse_is_one_line(shell: Shell, arguments: tuple[str, ...], told: str) -> None:
    shell.run("create", "lab")
    assert shell.run(*arguments) == 2
    assert shell.out == ""
    assert shell.err.count("\n") == 1
    assert told in shell.err


def test_a_stranger_in_a_public_swarm_gets_no_more_than_contribute(shell: Shell) -> None:
    shell.run("create", "open", "--public")
    assert shell.run("invite", "open", "--may", "train") == 2
    assert shell.err.count("\n") == 1
    assert shell.run("invite", "open", "--may", "train", "--label", "Ann") == 0


def test_a_damaged_authority_is_a_failure(shell: Shell) -> None:
    shell.run("create", "lab")
    (shell.home / "authorities" / "lab" / "authority.json").write_text("{")
    assert shell.run("invite", "lab") == 1
    assert "damaged" in shell.err
