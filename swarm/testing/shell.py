"""The programs as their users start them: real processes on loopback, in one home."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final

from swarm.clock import elapsed

ROOT: Final = Path(__file__).resolve().parents[2]
LOOPBACK: Final = "127.0.0.1:0"
PATIENCE_SECONDS: Final = 100.0
"""How long a command may take before a test takes it for hung."""


class Shell:
    """Runs programs in one home, for tests; :meth:`close` kills what still runs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """The program of a package: ``peer`` or ``bootstrap``, with its arguments."""
        return self._start("-m", *words)

    def start_patched(self, patch: str, *words: str) -> "subprocess.Popen[str]":
        """``swarm`` with these arguments, once the Python statements in ``patch`` have been run."""
        return self._start("-c", f"{patch}\nfrom peer.main import main; main()", *words)

    def _start(self, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(  # noqa: S603 - this program itself
            [sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ | {"SWARM_HOME": str(self.home)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self._started.append(process)
        return process

    def run(self, *words: str, patch: str = "") -> "subprocess.CompletedProcess[str]":
        """Run ``swarm`` to its end."""
        process = self.start_patched(patch, *words) if patch else self.start("peer", *words)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def json(self, *words: str) -> Any:
        """The document that ``swarm`` prints with ``--json``."""
        result = self.run(*words, "--json")
        if result.returncode:
            raise RuntimeError(f"{' '.join(words)}: {result.stderr}")
        return json.loads(result.stdout)

    def create(self) -> Path:
        """A swarm; returns a file with the organiser's invite."""
        path = self.home / "lab.invite"
        path.write_text(self.json("create", "lab")["invite"])
        return path

    def bootstrap(self, *, patch: str = "") -> "tuple[subprocess.Popen[str], str]":
        """A bootstrap node, and the invite that leads to it."""
        words = ("--invite", str(self.create()), "--listen", LOOPBACK)
        process = self.start_patched(patch, "bootstrap", *words) if patch else self.start("bootstrap", *words)
        return process, next(_lines(process.stdout)).strip()

    def peer(self, name: str, invite: str, memory: str) -> "subprocess.Popen[str]":
        """A peer whose status page is up."""
        words = [
            "--name",
            name,
            "--invite",
            invite,
            "--listen",
            LOOPBACK,
            "--memory",
            memory,
            "--device",
            "cpu",
        ]
        process = self.start("peer", "peer", *words)
        read_until(process, "status: http://")
        return process

    def close(self) -> None:
        """Kill what still runs."""
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()


def read_until(process: "subprocess.Popen[str]", wanted: str) -> str:
    """The line of standard error that has ``wanted`` in it."""
    seen = []
    for line in _lines(process.stderr):
        seen.append(line)
        if wanted in line:
            return line
    raise RuntimeError(f"the program ended without {wanted!r}: {''.join(seen)}")


def _lines(stream: IO[str] | None) -> Iterator[str]:
    if stream is None:
        raise RuntimeError("the program was started without pipes")
    return iter(stream)


def interrupt(process: "subprocess.Popen[str]") -> float:
    """Send Ctrl+C; returns the seconds until the process was gone."""
    began = elapsed()
    process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT))
    process.wait(timeout=30)
    return elapsed() - began
