"""Peers in homes behind routers: whom they link with, and how they find each other again."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from swarm.clock import elapsed, wall
from swarm.identity.authority import Authority
from swarm.identity.rights import ALL_RIGHTS
from swarm.services.status.document import StatusDocument
from swarm.testing.netlab.forwarding import program_environment
from swarm.testing.netlab.plugin import StartLab
from swarm.testing.netlab.running import RunningLab

HOMES = """
name = "homes"
[[site]]
name = "host"
[[host]]
name = "door"
site = "host"
[[site]]
name = "forwarded"
nat = "port-restricted"
[[host]]
name = "a"
site = "forwarded"
forward = [7423]
[[site]]
name = "cone"
nat = "full-cone"
[[host]]
name = "b"
site = "cone"
forward = [7423]
[[site]]
name = "three"
nat = "port-restricted"
[[host]]
name = "c"
site = "three"
[[site]]
name = "four"
nat = "port-restricted"
[[host]]
name = "d"
site = "four"
"""
LAN = """
name = "lan"
[[site]]
name = "home"
nat = "port-restricted"
[[host]]
name = "a"
count = 2
site = "home"
"""
HERE = Path(__file__).parent
SECONDS: Final = 120.0
"""Deadlines that catch hangs; other tests run on this machine at the same time."""


class Program:
    """A node on a host."""

    def __init__(self, lab: RunningLab, host: str, words: list[str]) -> None:
        self.host = host
        self.process = lab.popen(
            host,
            [sys.executable, *words],
            environment=program_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def status(self) -> StatusDocument:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("status\n")
        self.process.stdin.flush()
        return msgspec.json.decode(self.process.stdout.readline(), type=StatusDocument)

    @property
    def peer(self) -> str:
        return self.status().peer.id

    def linked(self) -> set[str]:
        return {link.peer for link in self.status().links}

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def until(holds: Callable[[], bool], what: str) -> None:
    """Ask again and again; each answer takes a node's turn of its loop."""
    deadline = elapsed() + SECONDS
    while not holds():
        assert elapsed() < deadline, what


class Homes:
    """A swarm in a lab: one invite, a home folder for each host."""

    def __init__(self, lab: RunningLab, folder: Path, *, addresses: tuple[str, ...]) -> None:
        self.lab = lab
        self._folder = folder
        authority = Authority.create("homes", public=False, now=wall())
        self.invite = authority.issue(label="", rights=ALL_RIGHTS, addresses=addresses, now=wall()).encode()
        self.programs: list[Program] = []

    def _start(self, host: str, words: list[str]) -> Program:
        program = Program(self.lab, host, words)
        self.programs.append(program)
        return program

    def peer(self, host: str, *, reachable: bool = False) -> Program:
        words = [str(HERE / "home.py"), str(self._folder / host), self.invite]
        if reachable:
            words += ["--advertise", f"{self.lab.address(host, seen_from='door')}:7423"]
        return self._start(host, words)

    def door(self) -> Program:
        words = ["-m", "bootstrap", "--invite", self.invite, "--home", str(self._folder / "door")]
        program = self._start("door", words)
        assert program.process.stdout is not None
        assert program.process.stdout.readline().startswith("swarm1")
        return program


@pytest.fixture
def homes(netlab: StartLab, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], Homes]:
    """Starts a lab, and ends what runs in it."""

    def start(description: str) -> Homes:
        lab = netlab(description)
        has_door = any(host.name == "door" for host in lab.lab.hosts)
        found = Homes(lab, tmp_path, addresses=(f"{lab.address('door')}:7423",) if has_door else ())
        request.addfinalizer(lambda: [program.close() for program in found.programs])
        return found

    return start


def shown_waiting(program: Program) -> set[str]:
    return {member.id for member in program.status().members if member.waiting == "for a relay"}


def test_four_homes_keep_in_touch_whatever_becomes_of_the_bootstrap_host(
    homes: Callable[[str], Homes],
) -> None:
    swarm = homes(HOMES)
    door = swarm.door()
    open_ones = [swarm.peer(host, reachable=True) for host in ("a", "b")]
    closed_ones = [swarm.peer(host) for host in ("c", "d")]
    everybody = [*open_ones, *closed_ones]
    a, b, c, d = (program.peer for program in everybody)

    def in_touch() -> bool:
        return all(
            {a, b, c, d} - program.linked() <= {program.peer} | ({c, d} if program in closed_ones else set())
            for program in everybody
        )

    until(in_touch, "those who cannot be called link with those who can")
    until(lambda: shown_waiting(closed_ones[0]) == {d}, "the pair that cannot is shown")
    until(lambda: shown_waiting(closed_ones[1]) == {c}, "at both ends")

    swarm.lab.kill("door")
    until(lambda: all(len(program.linked()) < 4 for program in everybody), "the end of its links is noticed")
    assert in_touch()
    swarm.door()
    until(lambda: all(len(program.linked() - {a, b, c, d}) == 1 for program in everybody), "it is used again")

    swarm.lab.kill("door")
    swarm.lab.kill("c")
    until(lambda: all(c not in program.linked() for program in (*open_ones, closed_ones[1])), "it is gone")
    back = swarm.peer("c")
    everybody[2] = closed_ones[0] = back
    until(in_touch, "it comes back through those that it remembers")
    assert back.peer == c
    assert door.process.wait(10) == -9


def test_two_peers_on_one_lan_find_each_other_without_any_seed(homes: Callable[[str], Homes]) -> None:
    swarm = homes(LAN)
    programs = [swarm.peer(host) for host in ("a1", "a2")]
    one, two = (program.status() for program in programs)
    began = max(one.peer.since, two.peer.since)
    until(lambda: two.peer.id in programs[0].linked(), "they link")
    (link,) = programs[0].status().links
    assert link.since - began < 20.0  # half a second, but for what else the machine does
