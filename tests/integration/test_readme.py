"""The five terminals of README.md, as real processes: what a newcomer types, typed."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^## The same by hand.*?(?=^## )", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)

DEADLINE = 240.0
"""Seconds that any command may take: catches hangs."""


def blocks() -> list[str]:
    section = SECTION.search((ROOT / "README.md").read_text("utf-8"))
    assert section is not None
    return BLOCK.findall(section.group())


class Terminals:
    """Runs commands in one folder with one home, as a user with five terminals would."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: list[subprocess.Popen[str]] = []
        programs = Path(sys.executable).parent
        self.environment = os.environ | {
            "SWARM_HOME": str(folder / "home"),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(programs.parent),
        }

    def type(self, command: str) -> str:
        """Run a command to its end; returns what it printed."""
        done = subprocess.run(
            shlex.split(command),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=DEADLINE,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, command: str) -> subprocess.Popen[str]:
        """Run a command in a terminal of its own."""
        log = (self.folder / f"{len(self.running)}.log").open("w")
        process = subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        log.close()
        self.running.append(process)
        return process

    def interrupt(self, process: subprocess.Popen[str]) -> int:
        """Ctrl+C; returns the exit status, which has to come within five seconds."""
        process.send_signal(signal.SIGINT)
        return process.wait(timeout=5.0)


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    shutil.copytree(ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    made = Terminals(tmp_path)
    yield made
    for process in made.running:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_five_terminals_of_the_readme(terminals: Terminals) -> None:
    swarm, *peers, author, check = blocks()
    create, bootstrap = swarm.splitlines()
    invite = terminals.type(create).strip()
    assert " " not in invite
    door = terminals.start(f"{bootstrap.replace('PASTE-THE-INVITE', invite)} --listen 127.0.0.1:0")
    assert door.stdout is not None
    invite = door.stdout.readline().strip()
    started = [terminals.start(peer.strip().replace("PASTE-THE-INVITE", invite)) for peer in peers]
    assert len(started) == 3

    train, status, jobs, export = author.replace("PASTE-THE-INVITE", invite).splitlines()
    result = json.loads(terminals.type(f"{train} --steps 12 --json"))
    assert result["loss"][-1] < result["loss"][0]
    assert len(result["loss"]) == 12
    assert "done" in terminals.type(status)
    [job] = json.loads(terminals.type(f"{jobs} --json"))["jobs"]
    assert job["id"] == result["job"]
    assert len({stage["holder"] for stage in job["stages"]}) == 3
    assert job["id"][:8] in terminals.type(jobs)
    terminals.type(export.replace("PASTE-THE-JOB", job["id"][:8]))
    assert (terminals.folder / "gpt.safetensors").stat().st_size > 900_000
    terminals.type(check.replace("python ", f"{shlex.quote(sys.executable)} ", 1))

    assert [terminals.interrupt(process) for process in (*started, door)] == [0] * 4
    assert not list((terminals.folder / "home").rglob("running.json"))
