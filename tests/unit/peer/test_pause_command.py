"""``swarm pause`` and ``swarm resume`` against a peer's status endpoint."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from bootstrap.commandline import run_program
from peer.commands import pause
from peer.main import app
from swarm.errors import MisuseError
from swarm.services.home import Home
from swarm.services.status.document import StatusDocument
from swarm.testing.shell import Shell, interrupt, read_until
from swarm.testing.status import FIRST, JOB, MOMENT, SampleSource

StatusNode = Callable[..., AbstractContextManager[str]]
PEER = f"peer peer1 ({FIRST[:8]})"


class HandingOver(SampleSource):
    """A peer whose stages go, look by look, once it is paused."""

    def __init__(self, *stages: int) -> None:
        super().__init__()
        self.stages = list(stages)

    def status(self) -> StatusDocument:
        peer = self.document.peer
        if peer.paused is not None and self.stages:
            self.replace(peer=msgspec.structs.replace(peer, stages=self.stages.pop(0)))
        return super().status()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pause, "LOOK_SECONDS", 0.01)


def swarm(home: Path, *words: str) -> int:
    return run_program(app, "swarm", [*words, "--home", str(home)])


def test_it_waits_until_others_have_the_stages_and_says_how_many_are_left(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    source = HandingOver(2, 2, 2, 1, 1, 0)
    with node(Home(tmp_path, "peer"), source=source):
        assert swarm(tmp_path, "pause") == 0
        assert capsys.readouterr().err.splitlines() == [
            "2 stages are being handed over",
            "1 stage is being handed over",
            f"{PEER} is paused: holds no stages; swarm resume puts it back to work",
        ]
        assert swarm(tmp_path, "resume") == 0
        assert capsys.readouterr().err == f"{PEER} gives itself to jobs\n"
    assert source.commands == [("pause", ""), ("resume", "")]


def test_json_is_one_document(tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]) -> None:
    with node(Home(tmp_path, "peer"), source=HandingOver(1, 1, 0)):
        for words, paused, stages in (
            (("pause", "--no-wait"), MOMENT, 1),
            (("pause",), MOMENT, 0),
            (("resume",), None, 0),
        ):
            assert swarm(tmp_path, *words, "--json") == 0
            output = capsys.readouterr()
            expected = {"peer": FIRST, "name": "peer1", "paused": paused, "stages": stages}
            assert (json.loads(output.out), output.err) == (expected, "")


def test_without_waiting_it_says_what_is_left_to_do(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    with node(Home(tmp_path, "peer"), source=HandingOver(2)):
        assert swarm(tmp_path, "pause", "--no-wait") == 0
    ends = "is paused: 2 stages to hand over; swarm resume puts it back to work\n"
    assert capsys.readouterr().err == f"{PEER} {ends}"


def test_a_job_that_needs_the_peer_as_its_coordinator_is_named(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    source = HandingOver(0)
    [job] = source.document.jobs
    source.replace(jobs=(msgspec.structs.replace(job, coordinator=FIRST),))
    with node(Home(tmp_path, "peer"), source=source):
        assert swarm(tmp_path, "pause") == 0
        assert f"but coordinates job {JOB[:8]}, which waits while it is away" in capsys.readouterr().err
        source.replace(jobs=(msgspec.structs.replace(job, coordinator=FIRST, state="done"),))
        assert swarm(tmp_path, "pause") == 0
        assert "coordinates" not in capsys.readouterr().err


def test_who_resumes_it_meanwhile_ends_the_waiting(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    class Resumed(SampleSource):
        def status(self) -> StatusDocument:
            if self.document.peer.paused is not None:
                self.set_paused(paused=False)
            return super().status()

    with node(Home(tmp_path, "peer"), source=Resumed()):
        assert swarm(tmp_path, "pause") == 1
    assert capsys.readouterr().err == "swarm: the peer was resumed: it holds 1 stage\n"


def test_an_interrupt_ends_the_command_and_not_the_pause(tmp_path: Path, node: StatusNode) -> None:
    source, shell = SampleSource(), Shell(tmp_path)
    with node(Home(tmp_path, "peer"), source=source):
        process = shell.start("peer", "pause")
        read_until(process, "1 stage is being handed over")
        interrupt(process)
        assert process.stderr is not None
        assert process.stderr.read().startswith("the peer stays paused")
        assert process.returncode == 130
    shell.close()
    assert source.commands == [("pause", "")]


def test_the_only_peer_of_the_home_is_meant_whatever_its_name(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = [SampleSource(), SampleSource()]
    with node(Home(tmp_path, "door"), role="bootstrap"), node(Home(tmp_path, "b"), source=sources[0]):
        assert swarm(tmp_path, "resume") == 0
        with node(Home(tmp_path, "c"), source=sources[1]):
            capsys.readouterr()
            assert swarm(tmp_path, "resume") == 2
            assert capsys.readouterr().err == "swarm: several peers run here, b, c: give --name\n"
            assert swarm(tmp_path, "resume", "--name", "c") == 0
    assert [len(source.commands) for source in sources] == [1, 1]


def test_where_there_is_none_to_pause_one_line_says_so(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Door(SampleSource):
        def set_paused(self, *, paused: bool) -> None:
            raise MisuseError("only peers do")

    def told(words: tuple[str, ...], status: int) -> str:
        assert swarm(tmp_path, *words) == status
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err.count("\n") == 1
        return output.err.removeprefix("swarm: ").rstrip()

    assert told(("pause",), 1) == f"no peer runs in {tmp_path}: swarm peer starts one"
    assert told(("resume", "--name", "x"), 1) == f"no peer runs in {tmp_path / 'x'}: swarm peer starts one"
    with node(Home(tmp_path, "door"), source=Door(), role="bootstrap"):
        assert told(("pause",), 1) == f"no peer runs in {tmp_path}: swarm peer starts one"
        assert told(("pause", "--name", "door"), 2) == "only peers do"


def test_a_pause_is_shown_until_it_ends(
    tmp_path: Path, node: StatusNode, capsys: pytest.CaptureFixture[str]
) -> None:
    with node(Home(tmp_path, "peer")):
        for command, shown in (("pause", True), ("resume", False)):
            assert swarm(tmp_path, command, *(["--no-wait"] if shown else [])) == 0
            assert swarm(tmp_path, "status") == 0
            assert ("paused since " in capsys.readouterr().out) is shown
