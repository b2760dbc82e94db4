"""Faults of a command line are one line; the exit status says whose they are."""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from bootstrap.commandline import (
    INTERRUPTED,
    add_command,
    install_last_resort,
    make_app,
    parsed_by,
    run_program,
    single_command,
    traceback_file,
    user_error,
)
from bootstrap.values import parse_size
from swarm.errors import (
    FailureError,
    LinkLostError,
    LocalError,
    MisuseError,
    RemoteRefusalError,
    SwarmError,
    TrainingError,
)


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Shared."""

    last: Annotated[bool, typer.Option("--last", help="Shared with other commands.")] = False


@dataclass(frozen=True, kw_only=True)
class Options(Shared):
    """Do the thing.

    Example:
      prog do   file
    """

    file: Annotated[str, typer.Argument(metavar="FILE")]
    memory: Annotated[int, typer.Option(parser=parsed_by(parse_size), metavar="SIZE", help="How much.")] = 5
    many: Annotated[list[int] | None, typer.Option(parser=parsed_by(parse_size), metavar="SIZE")] = None


def program(act: Any) -> typer.Typer:
    app = make_app("About it.", version=lambda: "1.2.3")
    add_command(app, "do", Options, act)
    add_command(app, "other", Shared, lambda _: None)
    return app


def run(act: Any, *arguments: str) -> int:
    return run_program(program(act), "prog", arguments)


def test_options_arrive_as_the_dataclass() -> None:
    seen: list[Options] = []
    assert run(seen.append, "do", "x.py", "--memory", "2KiB", "--many", "1", "--many", "2kB", "--last") == 0
    assert seen == [Options(file="x.py", memory=2048, many=[1, 2000], last=True)]
    assert run(seen.append, "do", "x.py") == 0
    assert seen[1] == Options(file="x.py")


def test_help_has_the_example_as_it_was_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, "do", "--help") == 0
    text = capsys.readouterr().out
    assert "  Example:\n    prog do   file\n" in text
    assert text.index("--memory") < text.index("--last"), "its own options come first"


def test_without_a_command_there_is_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None) == 0
    assert "About it." in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(None, "--version") == 0
    assert capsys.readouterr().out == "1.2.3\n"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("do",), "FILE"),
        (("do", "x", "--memory", "6G"), "'--memory': '6G' is not a size: write 6GiB"),
        (("do", "x", "--many", "z"), "'--many'"),
        (("do", "x", "--memory"), "--memory"),
        (("do", "x", "--wrong"), "--wrong"),
        (("do", "x", "y"), "y"),
        (("nothing",), "nothing"),
        (("--nothing",), "--nothing"),
        (("do", "x\n", "--a\nb"), "--a"),
    ],
)
def test_misuse_is_one_line_and_status_2(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(None, *arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.startswith("prog: ")
    assert output.err.count("\n") == 1
    assert told in output.err
    assert "--help" in output.err


def raising(error: BaseException) -> Any:
    def act(_: Options) -> None:
        raise error

    return act


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (MisuseError("write it so"), 2, "write it so"),
        (FailureError("the port\nis taken"), 1, "the port is taken"),
        (TrainingError("loss became NaN at step 3"), 1, "loss became NaN at step 3"),
        (RemoteRefusalError("clock", "your clock is wrong"), 1, "your clock is wrong"),
        (ExceptionGroup("tasks", [FailureError("disk full")]), 1, "disk full"),
        (
            ExceptionGroup(
                "tasks", [LinkLostError("gone"), ExceptionGroup("more", [FailureError("port taken")])]
            ),
            1,
            "port taken",
        ),
    ],
)
def test_errors_for_the_user_are_one_line(
    error: Exception, status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(raising(error), "do", "x") == status
    assert capsys.readouterr().err == f"prog: {line}\n"


@pytest.mark.parametrize(
    "error",
    [
        LocalError("a bug"),
        ValueError("a bug"),
        ExceptionGroup("tasks", [FailureError("port taken"), ValueError("a bug")]),
        ExceptionGroup("tasks", [FailureError("port taken"), LocalError("a bug")]),
    ],
)
def test_a_bug_is_never_passed_off_as_the_users_fault(error: Exception) -> None:
    with pytest.raises(type(error)):
        run(raising(error), "do", "x")


def test_an_interrupt_has_its_own_status() -> None:
    assert run(raising(KeyboardInterrupt()), "do", "x") == INTERRUPTED


def test_a_commands_own_status_is_the_programs() -> None:
    assert run(lambda _: 1, "do", "x") == 1
    assert run(lambda _: 0, "do", "x") == 0


def test_a_program_of_one_command_has_no_subcommand(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[Options] = []
    app = single_command("prog", Options, seen.append)
    assert run_program(app, "prog", ("x.py",)) == 0
    assert seen == [Options(file="x.py")]
    assert run_program(app, "prog", ()) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_group_of_errors_of_the_same_weight_tells_the_first() -> None:
    group = ExceptionGroup("x", [FailureError("one"), MisuseError("two")])
    told = user_error(group)
    assert isinstance(told, SwarmError)
    assert str(told) == "one"


class TestLastResort:
    """What an unforeseen exception leaves behind."""

    @pytest.fixture(autouse=True)
    def _hook(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "excepthook", sys.excepthook)

    def fire(self) -> None:
        try:
            raise ValueError("bad\nthing")
        except ValueError as error:
            sys.excepthook(ValueError, error, error.__traceback__)

    def test_one_line_names_the_file_with_the_traceback(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        home = tmp_path / "deep" / "home"
        install_last_resort("prog", ["do", "--home", str(home)], {})
        self.fire()
        file = home / "traceback.txt"
        line = f"prog: internal error: ValueError: bad thing; the traceback is in {file}\n"
        assert capsys.readouterr().err == line
        assert "Traceback" in file.read_text()

    def test_it_stands_in_a_real_process(self, tmp_path: Path) -> None:
        script = (
            "import sys; from bootstrap.commandline import *; from bootstrap.options import HomeOptions\n"
            "app = single_command('x', HomeOptions, lambda _: 1 / 0)\n"
            "start('x', lambda: run_program(app, 'x', sys.argv[1:]))"
        )
        command = [sys.executable, "-c", script, "--home", str(tmp_path)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 1
        assert result.stderr.startswith(
            "x: internal error: ZeroDivisionError: division by zero; the traceback is in"
        )
        assert result.stderr.count("\n") == 1
        assert "Traceback" in (tmp_path / "traceback.txt").read_text()
        result = subprocess.run([*command, "--debug"], capture_output=True, text=True, check=False)
        assert result.returncode == 1
        assert "Traceback" in result.stderr

    def test_debug_shows_it(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        install_last_resort("prog", ["do", "--debug", "--home", str(tmp_path)], {})
        self.fire()
        assert "Traceback" in capsys.readouterr().err
        assert not (tmp_path / "traceback.txt").exists()

    def test_a_home_that_cannot_be_written_is_no_second_fault(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (tmp_path / "file").write_text("x")
        install_last_resort("prog", ["--home", str(tmp_path / "file" / "home")], {})
        self.fire()
        assert capsys.readouterr().err == "prog: internal error: ValueError: bad thing; --debug shows where\n"


def test_where_tracebacks_go(tmp_path: Path) -> None:
    name = "traceback.txt"
    assert traceback_file(["--home", str(tmp_path)], {"SWARM_HOME": "/x"}) == tmp_path / name
    assert traceback_file([f"--home={tmp_path}"], {}) == tmp_path / name
    assert traceback_file(["peer"], {"SWARM_HOME": str(tmp_path)}) == tmp_path / name
    assert traceback_file(["--home"], {}).name == name
