"""CPU shares and memory by control groups: version 2 where it has both controllers, else version 1.

A share is a quota: a host gets its part of each period and no more. That it gets no less, although the
machine does other things, is the other half: the lab's group has the largest weight there is.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from swarm.errors import FailureError
from swarm.testing.netlab.layout import PREFIX
from swarm.testing.netlab.schema import Host, Lab

PERIOD: Final = 20_000
"""Microseconds of a quota's period: short, so that a slow machine looks slow, and not like one that halts."""
MOUNTS: Final = Path("/proc/self/mounts")
LARGEST_WEIGHT: Final = {1: 262_144, 2: 10_000}
"""By version, of ``cpu.shares`` and ``cpu.weight``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """Where the two controllers are mounted, and which version they speak."""

    cpu: Path
    memory: Path
    version: int

    @property
    def mounts(self) -> tuple[Path, ...]:
        """The one or two hierarchies."""
        return (self.cpu,) if self.cpu == self.memory else (self.cpu, self.memory)


def find_controllers(mounts: str) -> Controllers | None:
    """The controllers that a table of mounts (``/proc/self/mounts``) shows; None where they are missing."""
    old: dict[str, Path] = {}
    for line in mounts.splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup2":
            has = _read(Path(place) / "cgroup.controllers").split()
            if {"cpu", "memory"} <= set(has):
                return Controllers(cpu=Path(place), memory=Path(place), version=2)
        elif kind == "cgroup":
            old.update(dict.fromkeys({"cpu", "memory"} & set(options.split(",")), Path(place)))
    return Controllers(cpu=old["cpu"], memory=old["memory"], version=1) if len(old) == 2 else None


def is_needed(lab: Lab) -> bool:
    """Whether a host asks for anything that control groups give."""
    return any(_is_limited(host) for host in lab.hosts)


def create(controllers: Controllers, name: str, lab: Lab) -> None:
    """Make the groups of the lab that runs under ``name``. Raises FailureError where they are refused."""
    try:
        for mount in controllers.mounts:
            if controllers.version == 2:
                _write(mount / "cgroup.subtree_control", "+cpu +memory")
            _group(mount, name).mkdir()
        if controllers.version == 2:
            _write(_group(controllers.cpu, name) / "cgroup.subtree_control", "+cpu +memory")
        weight = "cpu.weight" if controllers.version == 2 else "cpu.shares"
        _write(_group(controllers.cpu, name) / weight, str(LARGEST_WEIGHT[controllers.version]))
        for host in lab.hosts:
            if _is_limited(host):
                _create_host(controllers, name, host)
    except OSError as error:
        why = f"{error.strerror}: {error.filename}"
        raise FailureError(f"cpu and memory of hosts need writable control groups: {why}") from None


def entrances(controllers: Controllers | None, name: str, host: str) -> list[Path]:
    """The files that a process of ``host`` writes its id into, to be limited."""
    if controllers is None:
        return []
    found = [_group(mount, name) / host / "cgroup.procs" for mount in controllers.mounts]
    return [path for path in found if path.exists()]


def members(controllers: Controllers | None, name: str) -> list[int]:
    """The processes in the groups of that lab."""
    groups = [_group(mount, name) for mount in controllers.mounts] if controllers is not None else []
    files = [file for group in groups for file in group.glob("**/cgroup.procs")]
    return [int(word) for file in files for word in _read(file).split()]


def remove(controllers: Controllers | None, name: str) -> None:
    """Remove the groups of that lab, whose processes have ended; what is not there is not missed."""
    if controllers is None:
        return
    for mount in controllers.mounts:
        group = _group(mount, name)
        with contextlib.suppress(FileNotFoundError):
            for inner in [path for path in group.iterdir() if path.is_dir()]:
                inner.rmdir()
            group.rmdir()


def _create_host(controllers: Controllers, name: str, host: Host) -> None:
    for mount in controllers.mounts:
        (_group(mount, name) / host.name).mkdir()
    cpu = _group(controllers.cpu, name) / host.name
    memory = _group(controllers.memory, name) / host.name
    if host.cpu is not None:
        quota = round(host.cpu * PERIOD)
        if controllers.version == 2:
            _write(cpu / "cpu.max", f"{quota} {PERIOD}")
        else:
            _write(cpu / "cpu.cfs_period_us", str(PERIOD))
            _write(cpu / "cpu.cfs_quota_us", str(quota))
    if host.memory is not None:
        limit = "memory.max" if controllers.version == 2 else "memory.limit_in_bytes"
        _write(memory / limit, str(host.memory))
        # Without this a host that is out of memory would use the machine's swap. Kernels may lack the file.
        swap, value = (
            ("memory.swap.max", 0)
            if controllers.version == 2
            else ("memory.memsw.limit_in_bytes", host.memory)
        )
        if (memory / swap).exists():
            _write(memory / swap, str(value))


def _is_limited(host: Host) -> bool:
    return host.cpu is not None or host.memory is not None


def _group(mount: Path, name: str) -> Path:
    return mount / f"{PREFIX}{name}"


def _read(path: Path) -> str:
    try:
        return path.read_text("ascii")
    except OSError:
        return ""


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")
