"""The demo in a lab: a peer on every host trains the example GPT, with the commands that people use.

The bootstrap node and ``swarm train`` run beside the peer of the first host. At the end stands what each link
carried, read from the interfaces, not from the program.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from swarm.errors import FailureError, MisuseError
from swarm.testing.netlab.counters import since
from swarm.testing.netlab.forwarding import ROOT, program_environment
from swarm.testing.netlab.running import RunningLab, start_lab
from swarm.testing.netlab.schema import Firewall, Lab, Nat
from swarm.testing.netlab.telling import links_lines

STEPS: Final = 20
MEMORY: Final = "9.6MiB"
"""What each peer offers: with four, the example GPT needs them all."""
_BOOTSTRAP_PORT: Final = 7422
_PEER_PORT: Final = 7423
_EXAMPLE: Final = ROOT / "examples" / "gpt.py"


class _Bootstrap(msgspec.Struct):
    """What is needed of ``bootstrap --json``."""

    invite: str


class _Trained(msgspec.Struct):
    """What is needed of ``swarm train --json``."""

    job: str
    loss: list[float]
    seconds: float


class _Stage(msgspec.Struct):
    stage: int
    holder: str


class _Job(msgspec.Struct):
    id: str
    stages: list[_Stage]


class _Peer(msgspec.Struct):
    id: str


class _Status(msgspec.Struct):
    """What is needed of ``swarm status --json``."""

    peer: _Peer
    jobs: list[_Job]


def run_demo(lab: Lab, *, steps: int, memory: str) -> int:
    """Run the demo in ``lab``, print what came of it, and return the exit status.

    Raises MisuseError for a lab that peers cannot train in, FailureError where the training fails.
    """
    if steps < 1:
        raise MisuseError("--steps is a number of at least 1")
    for site in lab.sites:
        if site.nat is not Nat.NONE or site.firewall is not Firewall.OPEN:
            raise MisuseError(
                f"peers at {site.name} could not be reached: the demo needs sites without NAT and firewall"
            )
    if not _EXAMPLE.is_file():
        raise FailureError(f"the demo trains {_EXAMPLE}, which is not there: run it in a checkout")
    with start_lab(lab, name=f"demo-{os.getpid()}") as running:
        return _Demo(running, memory).run(steps)


class _Demo:
    """One demo in a lab that runs; all state of its programs is in the folder of the lab."""

    def __init__(self, running: RunningLab, memory: str) -> None:
        self._running = running
        self._hosts = [host.name for host in running.lab.hosts]
        self._folder = running.folder
        self._invite = self._folder / "demo.invite"
        self._memory = memory

    def run(self, steps: int) -> int:
        """Train, and tell."""
        first = self._hosts[0]
        with contextlib.ExitStack() as started:
            self._create(first)
            self._bootstrap(first, started)
            for host in self._hosts:
                place = ["--listen", f"{self._running.address(host)}:{_PEER_PORT}", "--device", "cpu"]
                words = ["peer", "peer", *self._node(host), *place, "--memory", self._memory]
                started.enter_context(self._started(host, host, words))
            before = self._running.carried()
            trained = self._train(first, steps)
            carried = since(self._running.carried(), before)
            holders = self._holders(trained.job)
        _print(f"loss {trained.loss[0]:.4f} at the start, {trained.loss[-1]:.4f} at the end")
        _print(f"{len(trained.loss)} steps, {trained.seconds:.1f} s with capture, joining and data")
        for host, stages in holders.items():
            held = ", ".join(str(stage + 1) for stage in stages) or "none"
            _print(f"peer on {host} at {self._running.lab.host(host).site}: stage {held}")
        _print("what each link carried while it trained, read from the interfaces:")
        _print("\n".join(links_lines(carried, self._running.lab)))
        idle = [host for host, stages in holders.items() if not stages]
        if idle:
            _print(f"note: {', '.join(idle)} held no stage; with less --memory more peers are needed")
        return 0

    def _create(self, host: str) -> None:
        words = ["peer", "create", "demo", "--home", str(self._folder)]
        done = self._running.run(host, _program(words), environment=program_environment())
        self._invite.write_text(done.stdout, encoding="ascii")
        self._invite.chmod(0o600)

    def _bootstrap(self, host: str, started: contextlib.ExitStack) -> None:
        listen = ["--listen", f"{self._running.address(host)}:{_BOOTSTRAP_PORT}", "--json"]
        words = ["bootstrap", *self._node("bootstrap"), *listen]
        process = started.enter_context(self._started("bootstrap", host, words))
        text = b""
        while process.stdout and (line := process.stdout.readline()):
            text += line
            if line.rstrip() == b"}":
                document = msgspec.json.decode(text, type=_Bootstrap)
                self._invite.write_text(document.invite, encoding="ascii")
                return
        raise FailureError(f"the bootstrap node did not start: {self._last_words('bootstrap')}")

    def _train(self, host: str, steps: int) -> _Trained:
        words = ["peer", "train", str(_EXAMPLE), *self._node("author"), "--steps", str(steps), "--json"]
        # Its progress goes to the terminal.
        process = self._running.popen(
            host,
            _program(words),
            environment=program_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        output, _ = process.communicate()
        if process.returncode != 0:
            last = "; ".join(f"{name} said last: {self._last_words(name)}" for name in self._hosts)
            raise FailureError(f"swarm train ended with status {process.returncode}; {last}")
        return msgspec.json.decode(output, type=_Trained)

    def _holders(self, job: str) -> dict[str, list[int]]:
        """The stages of each host's peer, as it says itself."""
        found = {}
        for host in self._hosts:
            words = ["peer", "status", "--home", str(self._folder), "--name", host, "--json"]
            done = self._running.run(host, _program(words), environment=program_environment())
            status = msgspec.json.decode(done.stdout, type=_Status)
            stages = [stage for known in status.jobs if known.id == job for stage in known.stages]
            found[host] = [stage.stage for stage in stages if stage.holder == status.peer.id]
        return found

    def _node(self, name: str) -> list[str]:
        return ["--home", str(self._folder), "--name", name, "--invite", str(self._invite)]

    @contextlib.contextmanager
    def _started(self, name: str, host: str, words: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
        """A program that runs on ``host`` in the background, and is ended, with its log in the folder."""
        with (self._folder / f"{name}.log").open("wb") as log:
            process = self._running.popen(
                host,
                _program([*words, "--parent", str(os.getpid())]),
                environment=program_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        with process:
            try:
                yield process
            finally:
                process.terminate()

    def _last_words(self, name: str) -> str:
        lines = (self._folder / f"{name}.log").read_text("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "nothing"


def _program(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-P", "-m", *words]


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
