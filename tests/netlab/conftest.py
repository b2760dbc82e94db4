"""What the tests of netlab measure with: agents with sockets in hosts, the probe, iperf3."""

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.testing.netlab.forwarding import program_environment
from swarm.testing.netlab.iperf import Iperf
from swarm.testing.netlab.punctuality import Bounds, Machine
from swarm.testing.netlab.running import RunningLab

HERE = Path(__file__).parent


class Agent:
    """The sockets of one host."""

    def __init__(self, lab: RunningLab, host: str) -> None:
        self.host = host
        self._process = lab.popen(
            host,
            [sys.executable, str(HERE / "agent.py")],
            environment=program_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *words: object) -> str:
        self.tell(*words)
        return self.answer()

    def tell(self, *words: object) -> None:
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> Callable[[RunningLab, str], Agent]:
    """Starts agents."""

    def start(lab: RunningLab, host: str) -> Agent:
        started = Agent(lab, host)
        request.addfinalizer(started.close)
        return started

    return start


class Measurement:
    """A program in the background that prints JSON in its last line."""

    def __init__(self, lab: RunningLab, host: str, command: list[str], *, ready: bool = False) -> None:
        self.process = lab.popen(
            host,
            command,
            environment=program_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if ready:
            assert self.process.stdout.readline() == "ready\n"

    def go(self) -> None:
        """Let one begin that waits for it."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, Any]:
        output, _ = self.process.communicate(timeout=100)
        assert self.process.returncode == 0
        found: dict[str, Any] = json.loads(output)
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def probe(request: pytest.FixtureRequest) -> Callable[..., Measurement]:
    """Starts ``probe.py`` on a host."""

    def start(lab: RunningLab, host: str, *words: object, ready: bool = False) -> Measurement:
        command = [sys.executable, str(HERE / "probe.py"), *map(str, words)]
        started = Measurement(lab, host, command, ready=ready)
        request.addfinalizer(started.close)
        return started

    return start


@pytest.fixture
def iperf(request: pytest.FixtureRequest) -> Callable[..., Iperf]:
    """Starts transfers."""
    if shutil.which("iperf3") is None:
        pytest.fail("this test needs 'iperf3', which is not installed: apt-get install iperf3", pytrace=False)

    def start(lab: RunningLab, sender: str, receiver: str, *, port: int = 5201, seconds: int = 3) -> Iperf:
        started = Iperf(lab, sender, receiver, port=port, seconds=seconds)
        request.addfinalizer(started.close)
        return started

    return start


@pytest.fixture
def machine() -> Iterator[Machine]:
    """Says what may be asked of measurements while the test runs."""
    napping = Machine()
    napping.start()
    yield napping
    napping.close()


@pytest.fixture
def settled(machine: Machine) -> Callable[[Callable[[], float], Callable[[], Bounds]], float]:
    """Measures once, and where that is out of bounds, twice more: then the median counts.

    Machines that run tests do other things, too.
    """

    def measure(once: Callable[[], float], bounds: Callable[[], Bounds]) -> float:
        machine.forget()
        found = [once()]
        while len(found) < 3 and found[0] not in bounds():
            found.append(once())
        return statistics.median(found)

    return measure


@pytest.fixture
def at_best(machine: Machine) -> Callable[[Callable[[], None]], None]:
    """Runs a scenario that measures many things at once; where they do not all hold, twice more at most."""

    def attempt(scenario: Callable[[], None]) -> None:
        for _ in range(2):
            machine.forget()
            with contextlib.suppress(AssertionError):
                return scenario()
        machine.forget()
        return scenario()

    return attempt
