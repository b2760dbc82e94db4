"""What the organiser revokes, whom that puts out, and who is told."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bootstrap.commandline import run_program
from peer.main import app
from swarm.identity.authority import Authority
from swarm.services.home import Home, authority_folder
from swarm.services.members import Met, save_members
from swarm.testing.homes import enter_swarm
from swarm.testing.status import FIRST, SampleSource

StatusNode = Callable[..., AbstractContextManager[str]]


@pytest.fixture
def lab(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """A swarm with an invite for Ann, whose peer the home of this machine's own peer has met."""
    assert run_program(app, "swarm", ["create", "lab", "--public", "--home", str(tmp_path), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    arguments = ["invite", "lab", "--label", "Ann", "--uses", "1", "--home", str(tmp_path), "--json"]
    assert run_program(app, "swarm", arguments) == 0
    ann = json.loads(capsys.readouterr().out)
    enter_swarm(Home(tmp_path, "own"), made["invite"])
    return dict(made) | {"ann": ann}


def meet(tmp_path: Path, *pairs: tuple[str, str]) -> None:
    """The own peer has met these, each with the invite that it came by."""
    met = [
        Met(
            peer=peer,
            role="peer",
            invite=invite,
            label="",
            addresses=(),
            device="cpu",
            memory=0,
            since=1.0,
            seen=2.0,
        )
        for peer, invite in pairs
    ]
    save_members(tmp_path / "own", tuple(met))


def revoke(tmp_path: Path, *arguments: str) -> int:
    return run_program(app, "swarm", ["revoke", "lab", *arguments, "--home", str(tmp_path)])


def revoked(tmp_path: Path) -> tuple[set[str], set[str]]:
    known = Authority.load(authority_folder(tmp_path, "lab")).revocations
    return set(known.peers), set(known.invites)


def public_invite(tmp_path: Path) -> str:
    authority = Authority.load(authority_folder(tmp_path, "lab"))
    return next(invite.id for invite in authority.issued if invite.public)


@pytest.fixture
def running(tmp_path: Path, lab: dict[str, Any], node: StatusNode) -> AbstractContextManager[str]:
    """A node of the swarm that runs on this machine."""
    source = SampleSource()
    source.replace(swarm=msgspec.structs.replace(source.document.swarm, id=lab["swarm"]))
    return node(Home(tmp_path, "door"), source=source, role="bootstrap")


PEER = "p" * 32


def test_a_peer_goes_with_its_invite_and_all_who_came_by_it(
    tmp_path: Path, lab: dict[str, Any], running: AbstractContextManager[str], capsys: Any
) -> None:
    meet(tmp_path, (PEER, lab["ann"]["id"]), ("q" * 32, lab["ann"]["id"]))
    with running:
        assert revoke(tmp_path, PEER[:5]) == 0
    assert revoked(tmp_path) == ({PEER}, {lab["ann"]["id"]})
    told = capsys.readouterr().err
    assert f"invite {lab['ann']['id'][:8]} and peer pppppppp revoked: list 1 of swarm lab" in told
    assert "with it peer qqqqqqqq" in told


def test_an_invite_goes_alone(tmp_path: Path, lab: dict[str, Any], running: Any) -> None:
    with running:
        assert revoke(tmp_path, lab["ann"]["id"]) == 0
        assert revoke(tmp_path, lab["ann"]["id"]) == 0
    assert revoked(tmp_path) == (set(), {lab["ann"]["id"]})


def test_strangers_share_an_invite_so_only_the_peer_goes(
    tmp_path: Path, lab: dict[str, Any], running: Any
) -> None:
    meet(tmp_path, (PEER, public_invite(tmp_path)))
    with running:
        assert revoke(tmp_path, PEER) == 0
    assert revoked(tmp_path) == ({PEER}, set())


def test_ones_own_invite_is_not_revoked_by_accident(
    tmp_path: Path, lab: dict[str, Any], running: Any, capsys: Any
) -> None:
    own = Authority.load(authority_folder(tmp_path, "lab")).issued[0].id
    meet(tmp_path, (PEER, own))
    assert revoke(tmp_path, PEER) == 2
    assert "this machine's own own came by the same invite" in capsys.readouterr().err
    assert revoked(tmp_path) == (set(), set())
    with running:
        assert revoke(tmp_path, PEER, "--peer-only") == 0
    assert revoked(tmp_path) == ({PEER}, set())


@pytest.mark.parametrize(
    ("text", "told"), [("ppp", "at least 4 characters"), ("nobody", "swarm members lab lists them")]
)
def test_what_fits_nobody_revokes_nobody(
    tmp_path: Path, lab: dict[str, Any], text: str, told: str, capsys: Any
) -> None:
    assert revoke(tmp_path, text) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert revoked(tmp_path) == (set(), set())


def test_what_fits_two_revokes_neither(tmp_path: Path, lab: dict[str, Any], capsys: Any) -> None:
    meet(tmp_path, (PEER, lab["ann"]["id"]), ("p" * 31 + "q", lab["ann"]["id"]))
    assert revoke(tmp_path, "pppp") == 2
    assert "2 peers and invites begin with 'pppp'" in capsys.readouterr().err


def test_what_nobody_hears_is_kept_and_told_by_the_next_node(
    tmp_path: Path, lab: dict[str, Any], capsys: Any
) -> None:
    meet(tmp_path, (PEER, lab["ann"]["id"]))
    assert revoke(tmp_path, PEER) == 1
    error = capsys.readouterr().err
    assert "signed and kept, but no other peer could be told yet" in error
    assert revoked(tmp_path) == ({PEER}, {lab["ann"]["id"]})


def test_a_node_of_another_swarm_and_a_revoked_one_are_told_nothing(
    tmp_path: Path, lab: dict[str, Any], node: StatusNode
) -> None:
    meet(tmp_path, (FIRST, lab["ann"]["id"]))
    stranger, victim = SampleSource(), SampleSource()
    swarm = msgspec.structs.replace(victim.document.swarm, id=lab["swarm"])
    me = msgspec.structs.replace(victim.document.peer, id=FIRST)
    victim.replace(swarm=swarm, peer=me)
    with node(Home(tmp_path, "a"), source=stranger), node(Home(tmp_path, "b"), source=victim):
        assert revoke(tmp_path, FIRST) == 1
    assert ("revoke", "1") not in [*stranger.commands, *victim.commands]
