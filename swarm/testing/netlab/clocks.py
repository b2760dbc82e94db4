"""Wall clocks of hosts that are wrong.

A network namespace shares its machine's clock, and time namespaces move the monotonic clocks only. What is
left is to answer for the C library: programs of a host whose description has a ``clock`` (0 will do) are
started with ``clock_shim.c`` preloaded, which needs a C compiler. It moves the wall clock alone, for
dynamically linked programs. A program that waits for a moment of the wall clock, instead of for a while,
is told the moved clock and waits by the machine's.
"""

import os
import shutil
import sys
from importlib import resources
from pathlib import Path
from typing import Final

from swarm.errors import FailureError
from swarm.testing.netlab.schema import Lab
from swarm.testing.netlab.state import scratch
from swarm.testing.netlab.tools import run

COMPILER: Final = "cc"


def prepare(name: str, lab: Lab) -> None:
    """Give hosts of the lab ``name`` their clocks. Raises FailureError where they want some and cannot."""
    moved = [(host.name, host.clock) for host in lab.hosts if host.clock is not None]
    if not moved:
        return
    if shutil.which(COMPILER) is None:
        raise FailureError(
            f"clocks of hosts need {COMPILER!r}, which is not installed: apt-get install gcc libc6-dev"
        )
    with resources.as_file(resources.files(__package__) / "clock_shim.c") as source:
        command = [COMPILER, "-shared", "-fPIC", "-O2", "-o", str(_library(name)), str(source), "-ldl"]
        run(command, doing="cannot make clocks for hosts")
    for host, offset in moved:
        _file(name, host).write_bytes(_encoded(offset))


def set_clock(name: str, host: str, offset: float) -> None:
    """Put the clock of ``host`` of the lab ``name`` this many seconds ahead of the machine's, at once."""
    try:
        file = os.open(_file(name, host), os.O_WRONLY)
    except FileNotFoundError:
        raise FailureError(
            f"the clock of {host} cannot be moved: give it clock = 0 in its description"
        ) from None
    try:
        os.pwrite(file, _encoded(offset), 0)  # in place: programs have it mapped
    finally:
        os.close(file)


def environment(name: str, lab: Lab, host: str) -> dict[str, str]:
    """What a program of ``host`` needs in its environment to believe in that clock."""
    if lab.host(host).clock is None:
        return {}
    return {"LD_PRELOAD": str(_library(name)), "NETLAB_CLOCK": str(_file(name, host))}


def _encoded(offset: float) -> bytes:
    return round(offset * 1e9).to_bytes(8, sys.byteorder, signed=True)


def _library(name: str) -> Path:
    return scratch(name, "clock.so")


def _file(name: str, host: str) -> Path:
    return scratch(name, f"{host}.clock")
