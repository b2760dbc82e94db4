"""The processes of a namespace: found wherever they are in the tree, stopped, continued, killed."""

import contextlib
import os
import select
import signal
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
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
    return processes_of(inodes_of(namespaces))


def inodes_of(namespaces: Iterable[str]) -> set[int]:
    """What the kernel knows these namespaces by, also when their names have gone."""
    found = set()
    for namespace in namespaces:
        with contextlib.suppress(FileNotFoundError):
            found.add((NAMESPACES / namespace).stat().st_ino)
    return found


def processes_of(inodes: AbstractSet[int]) -> list[int]:
    """The processes whose network is one of these; never this one."""
    wanted = inodes - {network_of("self")}
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return sorted(pid for pid in pids if network_of(pid) in wanted)


def network_of(pid: int | str) -> int | None:
    """The inode of a process's network; None where it has ended."""
    try:
        return Path(f"/proc/{pid}/ns/net").stat().st_ino
    except OSError:
        return None


def wait_until_inside(pid: int, namespace: str) -> None:
    """Wait until a child has entered ``namespace``, or ended."""
    [wanted] = inodes_of([namespace])
    with contextlib.ExitStack() as opened:
        end = os.pidfd_open(pid)
        opened.callback(os.close, end)
        while network_of(pid) != wanted:
            if select.select([end], [], [], 0.001)[0]:
                return


def freeze(namespace: str) -> None:
    """Stop all processes of a namespace, those too that they start meanwhile."""
    deadline = elapsed() + SECONDS
    while running := [pid for pid in processes_in([namespace]) if not _is_stopped(pid)]:
        _signal_all(running, signal.SIGSTOP)
        _give_up_after(deadline, "stop")


def thaw(namespace: str) -> None:
    """Let them go on."""
    _signal_all(processes_in([namespace]), signal.SIGCONT)


def kill(find: Callable[[], Iterable[int]]) -> None:
    """Kill all processes that ``find`` finds, as ``kill -9`` does, until it finds none."""
    deadline = elapsed() + SECONDS
    while pids := set(find()):
        with contextlib.ExitStack() as opened:
            ends = {}
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    ends[pid] = os.pidfd_open(pid)
                    opened.callback(os.close, ends[pid])
            # Only now does an id stand for one process; those that it stood for before may have ended.
            for pid in ends.keys() & set(find()):
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
