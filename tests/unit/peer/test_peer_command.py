"""What ``swarm peer`` gives, and what it refuses before anybody is promised anything."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bootstrap.commandline import run_program
from peer.commands.peer import _gift
from peer.config import PeerOptions
from peer.main import app
from swarm.clock import wall
from swarm.identity.authority import Authority
from swarm.services.home import Home
from swarm.services.training.node import capabilities
from swarm.testing.homes import enter_swarm
from swarm.train.device import find_device, memory_of

LEAST = 2**20


def test_half_of_what_is_free_is_given_unless_told_otherwise() -> None:
    gift = _gift(PeerOptions(device="cpu"))
    free = memory_of(find_device("cpu")).available
    assert free // 3 < gift.memory < free * 2 // 3
    assert gift.accepts == "any"
    assert _gift(PeerOptions(device="cpu", memory=LEAST)).memory == LEAST


def test_stages_are_compiled_only_where_that_is_asked_for() -> None:
    gifts = [_gift(PeerOptions(device="cpu", memory=LEAST, compile=asked)) for asked in (False, True)]
    assert [gift.compiles for gift in gifts] == [False, True]
    plain, compiled = (capabilities(gift).like for gift in gifts)
    assert plain
    assert not compiled, "it is like no other machine"


@pytest.mark.parametrize("words", [("peer", "--device", "gpu9"), ("train", __file__)])
def test_a_home_where_it_cannot_run_is_named_before_torch_and_the_job_are_looked_at(
    words: tuple[str, ...],
    tmp_path: Path,
    node: Callable[..., AbstractContextManager[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_program(app, "swarm", [*words, "--home", str(tmp_path)]) == 2
    assert "give --invite to join a swarm" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    arguments = [*words, "--home", str(tmp_path), "--name", "taken", "--invite", "whichever"]
    with node(Home(tmp_path, "taken")):
        assert run_program(app, "swarm", arguments) == 1
    assert "home in use by process" in capsys.readouterr().err


def test_mine_are_the_jobs_of_the_homes_here(tmp_path: Path) -> None:
    authority = Authority.create("lab", public=False, now=wall())
    invite = authority.issue(label="me", now=wall()).encode()
    stranger = enter_swarm(Home(tmp_path / "elsewhere", "author"), invite).peer
    Home(tmp_path, "empty").folder.mkdir()
    gift = _gift(PeerOptions(home=tmp_path, device="cpu", memory=LEAST, jobs="mine"))
    assert gift.accepts == "mine"
    assert stranger not in gift.mine
    author = enter_swarm(Home(tmp_path, "author"), invite).peer
    assert author in gift.mine, "it came after the peer had started"
    assert _gift(PeerOptions(home=tmp_path, device="cpu", memory=LEAST, jobs="k3vq")).accepts == "k3vq"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--memory", "0"), "give --memory a size"),
        (("--memory", "1PiB"), "is more than cpu has"),
        (("--memory", "6G"), "'--memory'"),
        (("--disk", "much"), "'--disk'"),
        (("--device", "tpu"), "--device tpu"),
        (("--jobs", "some!"), "neither any nor mine"),
        (("--listen", "a:b"), "'--listen'"),
        (("--advertise", ":7423"), "'--advertise'"),
        (("--status", "::1"), "'--status'"),
        (("--invite", "nonsense"), "neither an invite"),
    ],
)
def test_misuse_is_one_line_and_leaves_nothing_in_the_swarm(
    tmp_path: Path, words: tuple[str, str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    others = {"--device": "cpu", "--invite": "whichever"}
    given = [part for name, value in others.items() if name != words[0] for part in (name, value)]
    assert run_program(app, "swarm", ["peer", *given, *words, "--home", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not (tmp_path / "peer" / "identity.json").exists()
