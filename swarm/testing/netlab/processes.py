"""The processes of a namespace: found wherever they are in the tree, stopped, continued, killed."""

import contextlib
import os
import select
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from swarm.clock import elapsed
from swarm.errors import FailureError

NAMESPACES: Final = Path("/run/netns")
"""Where ``ip netns`` keeps them."""
SECONDS: Final = 10.0
"""A process takes no longer than this to stop or end, unless the kernel is stuck with it."""


def processes_in(namespaces: Iterable[str]) -> list[int]:
    """The processes whose network is one of these namespaces; never this one."""
    inodes = set()
    for namespace in namespaces:
        with contextlib.suppress(FileNotFoundError):
            inodes.add((NAMESPACES / namespace).stat().st_ino)
    inodes.discard(Path("/proc/self/ns/net").stat().st_ino)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                if (entry / "ns" / "net").stat().st_ino in inodes:
                    found.append(int(entry.name))
    return sorted(found)


def freeze(namespace: str) -> None:
    """Stop all processes of a namespace, those too that they start meanwhile."""
    deadline = elapsed() + SECONDS
    while running := [pid for pid in processes_in([namespace]) if not _is_stopped(pid)]:
        _signal_all(running, signal.SIGSTOP)
        _give_up_after(deadline, "stop")


def thaw(namespace: str) -> None:
    """Let them go on."""
    _signal_all(processes_in([namespace]), signal.SIGCONT)


def kill(namespaces: Iterable[str]) -> None:
    """Kill all processes of these namespaces, as ``kill -9`` does, and wait until they have ended."""
    names = list(namespaces)
    deadline = elapsed() + SECONDS
    while pids := processes_in(names):
        with contextlib.ExitStack() as opened:
            ends = {}
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    ends[pid] = os.pidfd_open(pid)
                    opened.callback(os.close, ends[pid])
            # Only now does an id stand for one process; those that it stood for before may have ended.
            for pid in ends.keys() & set(processes_in(names)):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(ends[pid], signal.SIGKILL)
                select.select([ends[pid]], [], [], max(0.0, deadline - elapsed()))
        _give_up_after(deadline, "end")


def _signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_stopped(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return True
    return text.rpartition(")")[2].split()[0] in {"T", "t", "Z", "X"}


def _give_up_after(deadline: float, what: str) -> None:
    if elapsed() > deadline:
        raise FailureError(f"some processes of the lab did not {what} within {SECONDS:.0f} s")
