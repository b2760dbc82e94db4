"""A home's place in its swarm, and a node's life in it, with a node that does nothing else."""

import asyncio
import json
import os
import stat
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from bootstrap.hosting import Hosted, run_node
from bootstrap.options import NodeOptions, ServingOptions
from swarm.clock import wall
from swarm.errors import FailureError, MisuseError
from swarm.identity.authority import Authority
from swarm.identity.invite import Invite
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS
from swarm.net.address import Address
from swarm.services.home import Home
from swarm.testing.homes import enter_swarm
from swarm.testing.status import SampleSource


@pytest.fixture
def authority() -> Authority:
    return Authority.create("lab", public=False, now=wall())


def issue(authority: Authority, label: str = "me") -> Invite:
    return authority.issue(label=label, rights=ALL_RIGHTS, addresses=("a.example:1",), now=wall())


def test_an_invite_is_needed_once(tmp_path: Path, authority: Authority) -> None:
    home = Home(tmp_path, "peer")
    with pytest.raises(MisuseError, match="give --invite to join a swarm"):
        enter_swarm(home, None)
    joined = enter_swarm(home, issue(authority).encode())
    assert enter_swarm(home, None) == joined


def test_an_invite_may_come_from_a_file(tmp_path: Path, authority: Authority) -> None:
    file = tmp_path / "lab.invite"
    file.write_text(issue(authority).encode() + "\n")
    assert enter_swarm(Home(tmp_path, "peer"), str(file)).name == "lab"


def test_another_invite_of_the_swarm_keeps_the_peer(tmp_path: Path, authority: Authority) -> None:
    home = Home(tmp_path, "peer")
    first = enter_swarm(home, issue(authority).encode())
    second = enter_swarm(home, issue(authority, "again").encode())
    assert second.peer == first.peer
    assert second.member.label == "again"
    assert enter_swarm(home, None) == second


def test_an_invite_of_another_swarm_is_misuse_and_changes_nothing(
    tmp_path: Path, authority: Authority
) -> None:
    home = Home(tmp_path, "peer")
    joined = enter_swarm(home, issue(authority).encode())
    other = Authority.create("other", public=False, now=wall())
    with pytest.raises(MisuseError, match="this home is in lab"):
        enter_swarm(home, issue(other).encode())
    assert enter_swarm(home, None) == joined


def test_a_lost_identity_is_made_anew_under_the_same_key(tmp_path: Path, authority: Authority) -> None:
    home = Home(tmp_path, "peer")
    joined = enter_swarm(home, issue(authority).encode())
    (home.folder / "identity.json").unlink()
    assert enter_swarm(home, issue(authority).encode()).peer == joined.peer


class StillNode(SampleSource):
    """Joins and leaves, and notes it."""

    def __init__(self, identity: Identity, *, refusal: str = "", has_joined: bool = True) -> None:
        super().__init__()
        self.identity = identity
        self.has_joined = has_joined
        self.addresses = ("127.0.0.1:1",)
        self.notes: list[str] = []
        self._refusal = refusal

    async def __aenter__(self) -> Self:
        if self._refusal:
            raise FailureError(self._refusal)
        self.notes.append("joined")
        return self

    async def until_revoked(self) -> None:
        await asyncio.Event().wait()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.notes.append("left")


def options(tmp_path: Path, authority: Authority, *, host: str = "127.0.0.1") -> ServingOptions:
    return ServingOptions(home=tmp_path, invite=issue(authority).encode(), status=Address(host, 0))


def test_a_hosted_node_can_be_found_and_asked_while_it_runs(tmp_path: Path, authority: Authority) -> None:
    home = Home(tmp_path, "peer")

    async def body(hosted: Hosted[StillNode]) -> str:
        running = home.running()
        assert running is not None
        assert (running.pid, running.status_url) == (os.getpid(), hosted.status_url)
        url = hosted.status_url + "status"
        document = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=10).read())  # noqa: S310
        assert hosted.node.notes == ["joined"]
        return str(json.loads(document)["swarm"]["name"])

    made: list[StillNode] = []

    def make(_: Home, identity: Identity) -> StillNode:
        made.append(StillNode(identity))
        return made[0]

    assert run_node(options(tmp_path, authority), make, body) == "lab"
    assert made[0].notes == ["joined", "left"]
    assert home.running() is None


@pytest.mark.parametrize("source", [None, "swarm1abc", "nonsense"])
def test_a_command_that_is_misused_makes_no_home(tmp_path: Path, source: str | None) -> None:
    async def body(_: Hosted[StillNode]) -> None:
        raise AssertionError("it never joined")

    with pytest.raises(MisuseError):
        run_node(ServingOptions(home=tmp_path, invite=source), lambda _, own: StillNode(own), body)
    assert list(tmp_path.iterdir()) == []


def test_a_node_that_cannot_join_leaves_the_home_free(tmp_path: Path, authority: Authority) -> None:
    async def body(_: Hosted[StillNode]) -> None:
        raise AssertionError("it never joined")

    given = options(tmp_path, authority)
    with pytest.raises(FailureError, match="nobody there"):
        run_node(given, lambda _, identity: StillNode(identity, refusal="nobody there"), body)
    home = Home(tmp_path, "peer")
    assert home.running() is None
    assert not (home.folder / "identity.json").exists()
    other = Authority.create("other", public=False, now=wall())
    assert enter_swarm(home, issue(other).encode()).name == "other"


def test_a_node_that_tried_on_in_vain_until_its_user_ended_it_leaves_the_home_free(
    tmp_path: Path, authority: Authority
) -> None:
    async def body(_: Hosted[StillNode]) -> None:
        return None

    given = options(tmp_path, authority)
    run_node(given, lambda _, identity: StillNode(identity, has_joined=False), body)
    assert not (tmp_path / "peer" / "identity.json").exists()


def test_a_member_that_cannot_join_this_time_stays_one(tmp_path: Path, authority: Authority) -> None:
    home = Home(tmp_path, "peer")
    joined = enter_swarm(home, issue(authority).encode())

    async def body(_: Hosted[StillNode]) -> None:
        raise AssertionError("it never joined")

    with pytest.raises(FailureError):
        run_node(NodeOptions(home=tmp_path), lambda _, identity: StillNode(identity, refusal="x"), body)
    assert enter_swarm(home, None) == joined


def test_a_status_page_for_others_names_its_token(
    tmp_path: Path, authority: Authority, capsys: pytest.CaptureFixture[str]
) -> None:
    async def body(_: Hosted[StillNode]) -> None:
        return None

    everywhere = "0.0.0.0"
    run_node(options(tmp_path, authority, host=everywhere), lambda _, identity: StillNode(identity), body)
    token = tmp_path / "peer" / "status-token"
    assert f"needs the token in {token}" in capsys.readouterr().err
    if os.name != "nt":
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
