"""Who is in, by which invite, and where that is known from."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bootstrap.commandline import run_program
from peer.main import app
from swarm.services.home import Home
from swarm.services.members import Met, save_members
from swarm.testing.homes import enter_swarm
from swarm.testing.status import FIRST, SECOND, SampleSource

StatusNode = Callable[..., AbstractContextManager[str]]


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """A swarm with an invite for Ann."""
    assert run_program(app, "swarm", ["create", "lab", "--home", str(tmp_path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    arguments = ["invite", "lab", "--label", "Ann", "--uses", "1", "--home", str(tmp_path), "--json"]
    assert run_program(app, "swarm", arguments) == 0
    return dict(made) | {"ann": json.loads(capsys.readouterr().out)}


def members(tmp_path: Path, *arguments: str) -> int:
    return run_program(app, "swarm", ["members", "lab", "--home", str(tmp_path), *arguments])


def test_the_invites_are_listed_before_anybody_comes(
    tmp_path: Path, lab: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert members(tmp_path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["swarm"] == lab["swarm"]
    assert [(i["label"], i["uses"], i["peers"]) for i in document["invites"]] == [
        ("organiser", 0, []),
        ("Ann", 1, []),
    ]
    assert document["members"] == []
    assert members(tmp_path) == 0
    text = capsys.readouterr().out
    assert "Ann" in text
    assert "no member is known" in text


def test_peers_of_this_machine_are_known_without_a_running_node(
    tmp_path: Path, lab: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    identity = enter_swarm(Home(tmp_path, "peer1"), lab["ann"]["invite"])
    Home(tmp_path, "empty").folder.mkdir()
    assert members(tmp_path, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["members"] == [
        {
            "peer": identity.peer,
            "invite": lab["ann"]["id"],
            "label": "Ann",
            "role": "",
            "linked": False,
            "known_from": "home peer1 on this machine",
            "revoked": False,
        }
    ]
    assert document["invites"][1]["peers"] == [identity.peer]
    assert members(tmp_path) == 0
    assert "home peer1 on this machine" in capsys.readouterr().out


def test_what_running_nodes_met_counts_once_and_another_swarm_does_not(
    tmp_path: Path, lab: dict[str, Any], capsys: pytest.CaptureFixture[str], node: StatusNode
) -> None:
    source, stranger = SampleSource(), SampleSource()
    swarm = msgspec.structs.replace(source.document.swarm, id=lab["swarm"])
    source.replace(swarm=swarm)
    with (
        node(Home(tmp_path, "bootstrap"), source=source),
        node(Home(tmp_path, "peer1"), source=source),
        node(Home(tmp_path, "elsewhere"), source=stranger),
    ):
        assert members(tmp_path, "--json") == 0
    found = json.loads(capsys.readouterr().out)["members"]
    assert [(m["peer"], m["label"], m["linked"]) for m in found] == [
        (FIRST, "Ann", True),
        (SECOND, "Bob", False),
    ]
    assert [m["known_from"] for m in found] == ["", "met by bootstrap, peer1"]


def test_whom_a_node_met_is_known_after_it_ended(
    tmp_path: Path, lab: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    own = enter_swarm(Home(tmp_path, "peer1"), lab["ann"]["invite"])
    met = Met(
        peer=SECOND,
        role="peer",
        invite=lab["ann"]["id"],
        label="Ann",
        addresses=(),
        device="",
        memory=0,
        since=1.0,
        seen=2.0,
    )
    save_members(Home(tmp_path, "peer1").folder, (met,))
    assert members(tmp_path, "--json") == 0
    found = {m["peer"]: m for m in json.loads(capsys.readouterr().out)["members"]}
    assert set(found) == {own.peer, SECOND}
    assert (found[SECOND]["known_from"], found[SECOND]["linked"]) == ("met by peer1", False)


def test_a_swarm_that_was_not_made_here_is_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert members(tmp_path) == 2
    assert capsys.readouterr().err.count("\n") == 1
