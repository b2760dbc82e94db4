"""``swarm jobs``, ``cancel`` and ``export`` through a node that runs in the home already."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bootstrap.commandline import run_program
from peer.main import app
from swarm.clock import wall
from swarm.identity.authority import Authority
from swarm.identity.rights import ALL_RIGHTS
from swarm.services.home import Home
from swarm.testing.homes import enter_swarm
from swarm.testing.status import JOB, SampleSource

StatusNode = Callable[..., AbstractContextManager[str]]


def swarm(home: Path, *words: str) -> int:
    return run_program(app, "swarm", [*words, "--home", str(home)])


def invite(name: str) -> str:
    authority = Authority.create(name, public=False, now=wall())
    return authority.issue(label="me", rights=ALL_RIGHTS, now=wall()).encode()


def test_jobs_are_listed(tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]) -> None:
    with node(Home(tmp_path, "author")):
        assert swarm(tmp_path, "jobs") == 0
        [heads, line] = capsys.readouterr().out.splitlines()
        assert heads.split() == ["job", "name", "state", "step", "loss", "held-out", "ETA"]
        assert line.split() == [JOB[:8], "gpt", "training", "30/200", "2.5000", "-", "2", "min", "50", "s"]
        assert swarm(tmp_path, "jobs", "--json") == 0
        output = capsys.readouterr()
    [job] = json.loads(output.out)["jobs"]
    assert (job["id"], job["state"]) == (JOB, "training")
    assert output.err == ""


def test_no_jobs_is_said(tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]) -> None:
    source = SampleSource()
    source.replace(jobs=())
    with node(Home(tmp_path, "author"), source=source):
        assert swarm(tmp_path, "jobs") == 0
        assert capsys.readouterr().err == "swarm lab has no jobs\n"
        assert swarm(tmp_path, "jobs", "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"jobs": []}


def test_a_job_is_cancelled_by_the_running_node(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    source = SampleSource()
    with node(Home(tmp_path, "author"), source=source):
        assert swarm(tmp_path, "cancel", "jjj") == 0
        assert capsys.readouterr().err == f"job {JOB[:8]} is cancelled\n"
        assert swarm(tmp_path, "cancel", "jjj", "--json") == 0
        assert json.loads(capsys.readouterr().out) == {"job": JOB}
        assert swarm(tmp_path, "cancel", "zzz") == 2
        assert capsys.readouterr().err == "swarm: no job begins with zzz\n"
    assert source.commands == [("cancel", "jjj"), ("cancel", "jjj")]


def test_weights_are_exported_to_an_absolute_path(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = SampleSource()
    with node(Home(tmp_path, "author"), source=source):
        assert swarm(tmp_path, "export", "jj", "-o", "w.safetensors", "--only-trained") == 0
        assert swarm(tmp_path, "export", "jj", "-o", "w.safetensors", "--ema") == 0
        assert source.commands == [("export only_trained", "jj"), ("export ema", "jj")]
        capsys.readouterr()
        assert swarm(tmp_path, "export", "jj", "-o", "w.safetensors") == 0
        assert source.commands[2:] == [("export", "jj")]
        assert f"3 tensors, 1000 B, in {tmp_path / 'w.safetensors'}" in capsys.readouterr().err
        assert swarm(tmp_path, "export", "jj", "-o", "w.safetensors", "--json") == 0
        assert json.loads(capsys.readouterr().out)["path"] == str(tmp_path / "w.safetensors")


def test_a_place_that_cannot_be_written_is_misuse_before_anything_is_fetched(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    source = SampleSource()
    with node(Home(tmp_path, "author"), source=source):
        assert swarm(tmp_path, "export", "jj", "-o", str(tmp_path / "no" / "w")) == 2
        assert "there is no folder" in capsys.readouterr().err
        assert swarm(tmp_path, "export", "jj", "-o", str(tmp_path)) == 2
        assert "is a folder" in capsys.readouterr().err
        assert swarm(tmp_path, "export", "jj") == 2
    assert source.commands == []


def test_without_an_author_any_node_of_the_home_serves(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    source = SampleSource()
    with node(Home(tmp_path, "b"), source=source), node(Home(tmp_path, "a"), role="bootstrap"):
        assert swarm(tmp_path, "cancel", "jj") == 0
    assert source.commands == [("cancel", "jj")]
    capsys.readouterr()
    assert swarm(tmp_path, "cancel", "jj") == 2
    assert "give --invite once" in capsys.readouterr().err


def test_who_runs_a_peer_by_an_invite_joins_by_it_no_second_time(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority.create("lab", public=False, now=wall())
    ann, bob = (authority.issue(label=label, uses=1, now=wall()).encode() for label in ("Ann", "Bob"))
    enter_swarm(Home(tmp_path, "peer"), ann)
    source = SampleSource()
    with node(Home(tmp_path, "peer"), source=source):
        assert swarm(tmp_path, "cancel", "jj", "--invite", ann) == 0
        assert source.commands == [("cancel", "jj")]
        capsys.readouterr()
        # What another invite allows may be something else: by that one a peer of its own would have to join.
        assert swarm(tmp_path, "cancel", "jj", "--invite", bob) == 1
        assert "the invite has no address in it" in capsys.readouterr().err
    assert source.commands == [("cancel", "jj")]


def test_an_invite_of_another_swarm_is_not_passed_over_in_silence(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = invite("mine"), invite("other")
    enter_swarm(Home(tmp_path, "author"), mine)
    source = SampleSource()
    with node(Home(tmp_path, "author"), source=source):
        assert swarm(tmp_path, "cancel", "jj", "--invite", other) == 2
        assert "this home is in mine" in capsys.readouterr().err
        assert source.commands == []
        assert swarm(tmp_path, "cancel", "jj", "--invite", mine) == 0
    assert source.commands == [("cancel", "jj")]
