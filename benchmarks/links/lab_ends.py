"""Ends of links on hosts of a lab, as whoever measures there sees them; see ``lab_end`` for what they do."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.links import ours
from benchmarks.links.lab_end import PORT
from swarm.errors import FailureError
from swarm.testing.netlab.forwarding import program_environment
from swarm.testing.netlab.running import RunningLab

_PROGRAM: Final = "benchmarks.links.lab_end"
_AVAILABLE: Final = "/proc/sys/net/ipv4/tcp_available_congestion_control"


class LabEnd:
    """A pool or a node on ``host``, as a process; ``kind`` is ``node`` or the cap on what the pool sends.

    Or another ``program`` that takes such arguments and obeys such lines.
    """

    def __init__(
        self, lab: RunningLab, host: str, folder: Path, *, kind: str = "0", program: str = _PROGRAM
    ) -> None:
        self.host = host
        command = [sys.executable, "-m", program, str(folder), str(os.getpid()), kind]
        self.process = lab.popen(
            host,
            command,
            environment=program_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words: object) -> Any:
        """Give a command, and wait for its answer."""
        self.tell(*words)
        return self.answer()

    def tell(self, *words: object) -> None:
        """Give a command."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest command that has none, or the port. Raises FailureError where it died."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise FailureError(f"the end of a link on {self.host} has died")
        return msgspec.json.decode(line)

    def close(self) -> None:
        """End it, if it has not ended yet."""
        self.process.kill()
        self.process.communicate()


@contextlib.contextmanager
def pools(lab: RunningLab, hosts: Sequence[str], *, up: int = 0) -> Iterator[list[LabEnd]]:
    """A pool on each of ``hosts``; the others have dialed the first, whose cap on what it sends is ``up``."""
    folder = members(lab, hosts)
    with contextlib.ExitStack() as closing:
        ends: list[LabEnd] = []
        for host in hosts:
            kind = str(0 if ends else up)
            ends.append(LabEnd(lab, host, folder / host, kind=kind))
            closing.callback(ends[-1].close)
        for end in ends:
            end.answer()
        for end in ends[1:]:
            end.ask("dial", f"{lab.address(hosts[0], seen_from=end.host)}:{PORT}")
        yield ends


@contextlib.contextmanager
def nodes(lab: RunningLab, hosts: Sequence[str]) -> Iterator[list[LabEnd]]:
    """A node on each of ``hosts``, which joins through the first."""
    folder = members(lab, hosts, doors=(f"{lab.address(hosts[0])}:{PORT}",))
    with contextlib.ExitStack() as closing:
        ends: list[LabEnd] = []
        for host in hosts:
            ends.append(LabEnd(lab, host, folder / host, kind="node"))
            closing.callback(ends[-1].close)
            ends[-1].answer()
        yield ends


def members(lab: RunningLab, hosts: Sequence[str], *, doors: tuple[str, ...] = ()) -> Path:
    """The folder with those of a new swarm's members, named as the hosts."""
    folder = Path(tempfile.mkdtemp(dir=lab.folder))
    ours.make_members(folder, *hosts, doors=doors)
    return folder


def congestion_controls(lab: RunningLab) -> list[str]:
    """The congestion controls that this kernel has."""
    return lab.run(lab.lab.hosts[0].name, ["cat", _AVAILABLE]).stdout.split()


def use_congestion_control(lab: RunningLab, control: str) -> None:
    """Let new connections of all hosts have this one, whatever program makes them."""
    for host in lab.lab.hosts:
        change = f"ip route show | while read -r route; do ip route change $route congctl {control}; done"
        lab.run(host.name, ["sh", "-euc", change])
