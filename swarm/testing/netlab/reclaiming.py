"""The end of a lab: everything that bears its name goes, whoever made it."""

import contextlib
import shutil
from pathlib import Path
from typing import Final

from swarm.testing.netlab import cgroups, processes, state
from swarm.testing.netlab.layout import prefix_of
from swarm.testing.netlab.tools import run

HOSTS_FILES: Final = Path("/etc/netns")
"""Where ``ip netns exec`` looks for a namespace's own ``/etc/hosts``."""


def destroy(name: str) -> None:
    """End the processes of the lab of that name and remove its namespaces, groups and files.

    Needs no more than the name, and does not mind what is missing. Interfaces and routes go with namespaces.
    """
    prefix = prefix_of(name)
    namespaces = [entry.name for entry in _entries(processes.NAMESPACES) if entry.name.startswith(prefix)]
    inodes = processes.inodes_of(namespaces)
    controllers = cgroups.find_controllers(cgroups.MOUNTS.read_text("utf-8"))

    def inhabitants() -> list[int]:
        return processes.processes_of(inodes) + cgroups.members(controllers, name)

    processes.kill(inhabitants)
    if namespaces:
        commands = "".join(f"netns delete {namespace}\n" for namespace in namespaces)
        run(["ip", "-batch", "-"], given=commands, doing=f"cannot remove {name}")
    processes.kill(inhabitants)  # who was about to enter when the others were killed
    for entry in _entries(HOSTS_FILES):
        if entry.name.startswith(prefix):
            shutil.rmtree(entry)
    cgroups.remove(controllers, name)
    state.forget(name)


def reclaim() -> list[str]:
    """Destroy all labs whose owners have died, and return their names. To be called under the lock."""
    ruins = [found.name for found in state.load_all() if not found.owner.is_alive]
    for name in ruins:
        destroy(name)
    return ruins


def _entries(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(folder.iterdir())
    return []
