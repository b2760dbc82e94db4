"""``swarm status`` against real endpoints, and where there is none."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from bootstrap.commandline import run_program
from peer.main import app
from swarm.services.home import Home

StatusNode = Callable[..., AbstractContextManager[str]]


def swarm(*arguments: str) -> int:
    return run_program(app, "swarm", ["status", *arguments])


def test_the_node_of_this_home_is_found_and_its_token_used(
    node: StatusNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with node(Home(tmp_path, "peer"), loopback=False):
        assert swarm("--home", str(tmp_path)) == 0
        output = capsys.readouterr()
        assert "swarm lab" in output.out
        assert "step 30/200" in output.out
        assert output.err == ""


def test_json_is_the_endpoints_document(
    node: StatusNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with node(Home(tmp_path, "peer")):
        assert swarm("--home", str(tmp_path), "--json") == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["waiting"]["for"] == "stage 1 to load on bbbbbbbb"
    assert output.err == ""


def test_of_several_nodes_the_nearest_to_the_job_answers(
    node: StatusNode, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (
        node(Home(tmp_path, "a"), role="bootstrap"),
        node(Home(tmp_path, "c"), role="author"),
        node(Home(tmp_path, "b"), role="peer"),
    ):
        assert swarm("--home", str(tmp_path)) == 0
        assert capsys.readouterr().err == "also running here: a, b (ask one with --name)\n"
        assert swarm("--home", str(tmp_path), "--name", "b") == 0
        assert capsys.readouterr().err == ""


def test_a_url_with_or_without_scheme(node: StatusNode, capsys: pytest.CaptureFixture[str]) -> None:
    with node(None) as url:
        assert swarm(url) == 0
        assert swarm(url.removeprefix("http://").rstrip("/")) == 0
    assert "swarm lab" in capsys.readouterr().out


def test_a_token_opens_what_is_not_on_loopback(
    node: StatusNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with node(None, loopback=False) as url:
        assert swarm(url) == 2
        assert "--token" in capsys.readouterr().err
        assert swarm(url, "--token", "read") == 0
        monkeypatch.setenv("SWARM_STATUS_TOKEN", "read")
        assert swarm(url) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        ((), 1, "no node runs in"),
        (("--name", "peer7"), 1, "no node runs in"),
        (("--name", "../x"), 2, "cannot be the name of a home"),
        (("127.0.0.1:1",), 1, "nothing answers at http://127.0.0.1:1"),
        (("ftp://127.0.0.1:1",), 2, "write http://HOST:PORT"),
        (("http://",), 2, "write http://HOST:PORT"),
        (("--json", "--watch"), 2, "leave out --watch"),
        (("127.0.0.1:1", "--name", "peer"), 2, "leave out --name"),
    ],
)
def test_what_cannot_be_shown_is_one_line(
    arguments: tuple[str, ...], status: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert swarm(*arguments, "--home", str(tmp_path)) == status
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert told in output.err
