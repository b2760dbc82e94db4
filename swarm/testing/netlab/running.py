"""A lab that runs, and how to start one.

::

    with start_lab(load_lab("two-clusters")) as lab:
        lab.run("left1", ["iperf3", "-s", "-D", "-1"])
        lab.run("right1", ["iperf3", "-c", lab.address("left1")])
        lab.cut("left")

A lab belongs to the process that started it and ends with the context; or, if that process is killed, when
anybody next starts or ends a lab. Other processes can find it by its name and use it meanwhile.
"""

import contextlib
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from swarm.errors import FailureError, MisuseError
from swarm.testing.netlab import cgroups, clocks, faults, processes, state
from swarm.testing.netlab.building import core_script, creation, host_script, site_script
from swarm.testing.netlab.counters import Carried, read_forwarder_drops, read_links
from swarm.testing.netlab.forwarder import Report
from swarm.testing.netlab.forwarding import ForwarderProcess, read_report
from swarm.testing.netlab.layout import Layout, make_layout
from swarm.testing.netlab.machine import check_fits, check_rates, notes, this_machine
from swarm.testing.netlab.reclaiming import HOSTS_FILES, destroy, reclaim
from swarm.testing.netlab.schema import Host, Lab
from swarm.testing.netlab.tools import inside, require, run

_ENTER = 'for file in $NETLAB_GROUPS; do echo $$ > "$file"; done; unset NETLAB_GROUPS; exec "$@"'
"""Joins the host's control groups, then becomes the command."""


class RunningLab:
    """What can be done with a lab that runs, by its owner and by others."""

    def __init__(self, name: str, lab: Lab, forwarder: ForwarderProcess | None = None) -> None:
        self.name = name
        self.layout: Layout = make_layout(lab, name=name)
        self._forwarder = forwarder
        self._started: list[subprocess.Popen[Any]] = []

    @property
    def lab(self) -> Lab:
        """Its description, with the rates that it has now. Raises FailureError where it has ended."""
        return self._state().lab

    @property
    def folder(self) -> Path:
        """A folder for what its programs keep; it goes with the lab, however that ends."""
        found = state.scratch(self.name, "folder")
        found.mkdir(mode=0o700, exist_ok=True)
        return found

    # Programs

    def command(self, host: str, command: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        """What to execute, and what to add to the environment, for ``command`` to run on ``host``.

        The process that executes it becomes the command: its id, signals and status are the command's.
        """
        place = self.layout.hosts[self.lab.host(host).name]
        controllers = cgroups.find_controllers(cgroups.MOUNTS.read_text("utf-8"))
        groups = cgroups.entrances(controllers, self.name, host)
        environment = clocks.environment(self.name, self.lab, host)
        if groups:
            environment["NETLAB_GROUPS"] = " ".join(str(path) for path in groups)
            # Groups first: the namespace has a /sys of its own, without them.
            return ["sh", "-euc", _ENTER, "sh", *inside(place.namespace, command)], environment
        return inside(place.namespace, command), environment

    def popen(
        self,
        host: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> "subprocess.Popen[Any]":
        """Start ``command`` on ``host``; ``options`` are those of ``subprocess.Popen``.

        Returns when it is there; it is killed when the lab ends. ``environment`` is added to this process's.
        """
        words, added = self.command(host, command)
        environ = {**os.environ, **(environment or {}), **added}
        process = subprocess.Popen(words, env=environ, **options)  # noqa: S603 - the caller's own
        self._started.append(process)
        processes.wait_until_inside(process.pid, self._namespace(host))
        return process

    def run(
        self,
        host: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        timeout: float = 60.0,
        check: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        """Run ``command`` on ``host`` to its end, at most ``timeout`` seconds, and return what it printed.

        Raises FailureError where it takes longer or, with ``check``, fails.
        """
        options: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "text": True,
        }
        with self.popen(host, command, environment=environment, **options) as process:
            try:
                output, errors = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                raise FailureError(f"{command[0]} on {host} did not end within {timeout:g} s") from None
        self._started.remove(process)
        if check and process.returncode != 0:
            raise FailureError(
                f"{command[0]} on {host} ended with {process.returncode}: {(errors or output).strip()}"
            )
        return subprocess.CompletedProcess(list(command), process.returncode, output, errors)

    def address(self, host: str, *, seen_from: str | None = None) -> str:
        """The address of ``host`` as another host sees it; behind NAT, that of its router for other sites."""
        self.lab.host(host)
        return self.layout.address(host, seen_from=seen_from)

    def freeze(self, host: str) -> None:
        """Stop all processes of ``host``, as when a laptop is closed; its network goes on."""
        processes.freeze(self._namespace(host))

    def thaw(self, host: str) -> None:
        """Let them go on."""
        processes.thaw(self._namespace(host))

    def kill(self, host: str) -> None:
        """Kill all processes of ``host`` (SIGKILL)."""
        namespace = self._namespace(host)
        processes.kill(lambda: processes.processes_in([namespace]))

    def set_clock(self, host: str, offset: float) -> None:
        """Put the wall clock of ``host``, whose description has one, this many seconds ahead, at once."""
        self.lab.host(host)
        clocks.set_clock(self.name, host, offset)

    # The network

    def cut(self, name: str, other: str | None = None) -> None:
        """Cut the link of a host or a site, or the path between two sites: packets vanish without a word."""
        self._set_link(name, other, cut=True)

    def heal(self, name: str | None = None, other: str | None = None) -> None:
        """Undo that cut; without a name, all cuts and partitions."""
        if name is None:
            faults.heal_all(self.lab, self.layout)
        else:
            self._set_link(name, other, cut=False)

    def partition(self, *groups: Sequence[str]) -> None:
        """Cut all paths between these groups of sites; sites that are in none are one more group."""
        faults.set_paths(self.layout, faults.across(self.lab, groups), cut=True)

    def set_rate(self, name: str, *, uplink: float | None = None, downlink: float | None = None) -> None:
        """Change rates of a host's or a site's link, in bits a second; None leaves one, infinite frees it."""
        self._change(lambda lab: faults.with_rates(lab, name, uplink=uplink, downlink=downlink))

    def set_path_rate(self, one: str, other: str, rate: float) -> None:
        """Change the rate of the path between two sites, both ways, in bits a second; infinite frees it."""
        self._change(lambda lab: faults.with_path_rate(lab, one, other, rate))

    def carried(self) -> list[Carried]:
        """Bytes on each link since the start, read from the interfaces of hosts and sites."""
        return read_links(self.layout)

    def forwarder(self) -> tuple[Report, int]:
        """What the forwarder says of itself, and how many packets it was too slow to fetch."""
        return read_report(self.name), read_forwarder_drops(self.layout)

    def notes(self) -> list[str]:
        """What whoever measures in this lab should know."""
        found = notes(self.lab, this_machine())
        if self.layout.is_delayed and not processes.processes_in([self.layout.core]):
            found.append("the forwarder has died: nothing passes between sites")
        return found

    # Its end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill what runs in the lab, and remove all of it."""
        with state.locked():
            destroy(self.name)
        for process in self._started:
            process.wait()
        self._started.clear()
        if self._forwarder is not None:
            self._forwarder.close()

    def _namespace(self, host: str) -> str:
        return self.layout.hosts[self.lab.host(host).name].namespace

    def _state(self) -> state.State:
        found = state.load(self.name)
        if found is None:
            raise FailureError(f"the lab {self.name} has ended")
        return found

    def _set_link(self, name: str, other: str | None, *, cut: bool) -> None:
        if other is None:
            faults.set_link(self.layout, faults.find(self.lab, name), cut=cut)
        else:
            pair = (self.lab.site(name).name, self.lab.site(other).name)
            faults.set_paths(self.layout, [pair], cut=cut)

    def _change(self, change: Callable[[Lab], Lab]) -> None:
        with state.locked():
            found = self._state()
            changed = change(found.lab)
            check_rates(changed)
            faults.apply_rates(found.lab, changed, self.layout)
            state.save(msgspec.structs.replace(found, lab=changed))


def start_lab(lab: Lab, *, name: str | None = None, is_kept: bool = False) -> RunningLab:
    """Make ``lab`` and run it, under its own name or another.

    Raises FailureError where something is missing, the machine cannot give what the lab asks for, or a lab of
    that name runs already. Labs whose owners have died are removed first.
    """
    require()
    name = name or lab.name
    layout = make_layout(msgspec.structs.replace(lab, name=name), name=name)
    with state.locked():
        reclaim()
        running = state.load_all()
        for other in running:
            if other.name == name:
                raise FailureError(
                    f"a lab {name} is up already, of process {other.owner.pid}: end it, or take another name"
                )
        check_fits(
            lab, this_machine(), [msgspec.structs.replace(other.lab, name=other.name) for other in running]
        )
        state.save(state.State(name=name, owner=state.this_process(), lab=lab, is_kept=is_kept))
    forwarder: ForwarderProcess | None = None
    try:
        _build(lab, layout)
        if layout.is_delayed:
            forwarder = ForwarderProcess.start(lab, layout)
    except BaseException:
        with contextlib.suppress(FailureError), state.locked():
            destroy(name)
        raise
    return RunningLab(name, lab, forwarder)


def find_lab(name: str | None = None) -> RunningLab:
    """The lab of that name, or the only one that is up. Raises MisuseError."""
    alive = [found for found in state.load_all() if found.owner.is_alive]
    chosen = [found for found in alive if name in {None, found.name}]
    match chosen:
        case [one]:
            return RunningLab(one.name, one.lab)
        case []:
            known = ", ".join(found.name for found in alive) or "none"
            raise MisuseError(f"no lab{f' {name}' if name else ''} is up (up: {known}): start it with 'up'")
        case _:
            raise MisuseError(
                f"several labs are up: say --lab with one of {', '.join(found.name for found in alive)}"
            )


def _build(lab: Lab, layout: Layout) -> None:
    run(["ip", "-batch", "-"], given=creation(layout), doing=f"cannot make the namespaces of {layout.name}")
    controllers = cgroups.find_controllers(cgroups.MOUNTS.read_text("utf-8"))
    if cgroups.is_needed(lab):
        if controllers is None:
            raise FailureError(
                "cpu and memory of hosts need the cpu and memory control groups, which are not mounted"
            )
        cgroups.create(controllers, layout.name, lab)
    clocks.prepare(layout.name, lab)
    _set_up(layout.core, core_script(lab, layout))
    for site in layout.sites.values():
        _set_up(site.namespace, site_script(lab, site))
        for host in site.hosts:
            _set_up(host.namespace, host_script(lab, site, host))
            _write_hosts_file(layout, lab.host(host.name))


def _set_up(namespace: str, script: str) -> None:
    run(inside(namespace, ["sh", "-eu"]), given=script, doing=f"cannot set up {namespace}")


def _write_hosts_file(layout: Layout, host: Host) -> None:
    """So that hosts know each other by name."""
    folder = HOSTS_FILES / layout.hosts[host.name].namespace
    folder.mkdir(parents=True)
    lines = [f"{layout.address(other, seen_from=host.name)} {other}\n" for other in layout.hosts]
    (folder / "hosts").write_text("127.0.0.1 localhost\n::1 localhost\n" + "".join(lines), encoding="ascii")
