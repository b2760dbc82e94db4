"""Disks that are small or cannot be written, for tests of what happens there.

They take root on Linux; elsewhere a test that asks for one fails, and says so.
"""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from swarm.errors import FailureError


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A disk of ``size`` bytes at ``folder``, until the context ends; raises FailureError for none."""
    folder.mkdir(parents=True, exist_ok=True)
    _run("mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield folder
    finally:
        _run("umount", "--lazy", str(folder))


def make_read_only(folder: Path) -> None:
    """From now on the disk at ``folder`` takes nothing."""
    _run("mount", "-o", "remount,ro", str(folder))


def fill(folder: Path) -> Path:
    """Leave no room on the disk at ``folder``; returns the file that takes it."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 16, 1 << 12):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)) == size:
                    pass
    return filler


def _run(*command: str) -> None:
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603 - commands of this file
    except (OSError, subprocess.CalledProcessError) as error:
        why = (getattr(error, "stderr", "") or str(error)).strip()
        raise FailureError(f"{' '.join(command)}: {why}: disks for tests take root on Linux") from error
