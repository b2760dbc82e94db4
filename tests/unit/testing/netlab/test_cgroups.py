"""Shares and memory become the files of either version of control groups."""

from pathlib import Path

import pytest

from swarm.errors import FailureError
from swarm.testing.netlab import cgroups
from swarm.testing.netlab.description import parse_lab

LAB = parse_lab(
    'name = "n"\n[[site]]\nname = "s"\n'
    '[[host]]\nname = "a"\nsite = "s"\ncpu = 0.5\nmemory = "64MiB"\n'
    '[[host]]\nname = "b"\nsite = "s"\n'
)


def read(path: Path) -> str:
    return path.read_text("ascii")


def test_version_2_is_taken_where_it_has_both_controllers(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n", encoding="ascii")
    controllers = cgroups.find_controllers(f"proc /proc proc rw 0 0\ncgroup2 {tmp_path} cgroup2 rw 0 0\n")
    assert controllers is not None
    cgroups.create(controllers, "lab", LAB)
    host = tmp_path / "netlab-lab" / "a"
    assert read(tmp_path / "cgroup.subtree_control") == "+cpu +memory"
    assert read(host.parent / "cgroup.subtree_control") == "+cpu +memory"
    assert read(host.parent / "cpu.weight") == "10000"
    assert (read(host / "cpu.max"), read(host / "memory.max")) == ("10000 20000", str(64 * 2**20))
    assert not (tmp_path / "netlab-lab" / "b").exists()


def test_version_1_is_taken_where_version_2_has_nothing(tmp_path: Path) -> None:
    for folder in ("cpu", "memory", "unified"):
        (tmp_path / folder).mkdir()
    (tmp_path / "unified" / "cgroup.controllers").write_text("\n", encoding="ascii")
    mounts = (
        f"cgroup2 {tmp_path}/unified cgroup2 rw 0 0\n"
        f"cgroup {tmp_path}/cpu cgroup rw,cpu,cpuacct 0 0\n"
        f"cgroup {tmp_path}/memory cgroup rw,memory 0 0\n"
    )
    controllers = cgroups.find_controllers(mounts)
    assert controllers is not None
    cgroups.create(controllers, "lab", LAB)
    cpu, memory = tmp_path / "cpu" / "netlab-lab" / "a", tmp_path / "memory" / "netlab-lab" / "a"
    assert (read(cpu / "cpu.cfs_quota_us"), read(cpu / "cpu.cfs_period_us")) == ("10000", "20000")
    assert read(memory / "memory.limit_in_bytes") == str(64 * 2**20)


def test_a_machine_without_them_says_so(tmp_path: Path) -> None:
    assert cgroups.find_controllers("proc /proc proc rw 0 0\n") is None
    nowhere = cgroups.Controllers(cpu=tmp_path / "not", memory=tmp_path / "not", version=1)
    with pytest.raises(FailureError, match=r"need writable control groups: No such file or directory: .*not"):
        cgroups.create(nowhere, "lab", LAB)
