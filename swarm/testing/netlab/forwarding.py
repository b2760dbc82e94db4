"""The forwarder as a process of its lab: started in the core, listened to, ended."""

import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Final, Self

import msgspec

from swarm.errors import FailureError
from swarm.testing.netlab.forwarder import Report, make_order
from swarm.testing.netlab.layout import Layout
from swarm.testing.netlab.schema import Lab
from swarm.testing.netlab.state import scratch
from swarm.testing.netlab.tools import inside

START_SECONDS: Final = 30.0
"""From its start to its first word."""
ROOT: Final = Path(__file__).parents[3]
"""Where the package is imported from."""


class ForwarderProcess:
    """The forwarder of a lab that this process owns."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    @classmethod
    def start(cls, lab: Lab, layout: Layout) -> Self:
        """Start it and wait until it forwards. Raises FailureError with its last words where it does not."""
        order, log = scratch(layout.name, "order"), scratch(layout.name, "log")
        order.write_bytes(msgspec.json.encode(make_order(lab, layout, report=scratch(layout.name, "report"))))
        command = [sys.executable, "-P", "-m", "swarm.testing.netlab.forwarder", str(order)]
        with log.open("wb") as errors:
            process = subprocess.Popen(  # noqa: S603 - this program itself
                inside(layout.core, command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=program_environment(),
                start_new_session=True,
            )
        found = cls(process)
        if not process.stdout or not select.select([process.stdout], [], [], START_SECONDS)[0]:
            found.close()
            raise FailureError(f"the forwarder did not start within {START_SECONDS:.0f} s")
        if process.stdout.readline() != b"ready\n":
            found.close()
            words = log.read_text("utf-8", errors="replace").strip().splitlines()
            raise FailureError(f"the forwarder did not start: {words[-1] if words else 'it said nothing'}")
        return found

    def close(self) -> None:
        """End it, if it has not ended yet."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()


def read_report(name: str) -> Report:
    """What the forwarder of the lab ``name`` said last."""
    try:
        text = scratch(name, "report").read_bytes()
    except FileNotFoundError:
        return Report()
    return msgspec.json.decode(text, type=Report) if text else Report()


def program_environment() -> dict[str, str]:
    """This process's environment, in which the program is found even where it is not installed."""
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{known}" if known else str(ROOT)}
