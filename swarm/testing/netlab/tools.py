"""Running the system's tools, and saying in one line what is missing."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from swarm.errors import FailureError

PACKAGES: Final = {"ip": "iproute2", "tc": "iproute2", "bridge": "iproute2", "nft": "nftables", "sh": "dash"}
"""Tools that every lab needs, with the Debian package of each."""
TUN_DEVICE: Final = Path("/dev/net/tun")
TOOL_SECONDS: Final = 60.0
"""No tool takes longer than this unless something is badly wrong."""


def missing() -> str | None:
    """The first thing that keeps this machine from running labs, and what to do about it; or None."""
    if sys.platform != "linux":
        return "netlab needs Linux: it is made of network namespaces"
    if os.geteuid() != 0:
        return "netlab needs root: run it with sudo"
    for tool, package in PACKAGES.items():
        if shutil.which(tool) is None:
            return f"netlab needs {tool!r}, which is not installed: apt-get install {package}"
    if not TUN_DEVICE.exists():
        return f"netlab needs {TUN_DEVICE}, which is missing: modprobe tun, or give the container that device"
    return None


def require() -> None:
    """Raise FailureError with that line where something is missing."""
    line = missing()
    if line is not None:
        raise FailureError(line)


def run(command: Sequence[str], *, given: str = "", doing: str) -> str:
    """What ``command`` prints when given ``given``. Raises FailureError with ``doing`` and its complaint."""
    try:
        done = subprocess.run(  # noqa: S603 - commands of this package
            command, input=given, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise FailureError(f"{doing}: {command[0]} did not end within {TOOL_SECONDS:.0f} s") from None
    except OSError as error:
        raise FailureError(f"{doing}: {error}") from None
    if done.returncode != 0:
        said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
        raise FailureError(f"{doing}: {said[0] if said else f'{command[0]} failed without a word'}")
    return done.stdout


def inside(namespace: str, command: Sequence[str]) -> list[str]:
    """``command``, to be run inside a namespace; the process that is started becomes it."""
    return ["ip", "netns", "exec", namespace, *command]
