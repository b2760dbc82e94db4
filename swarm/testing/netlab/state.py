"""Which labs there are: one file for each, with its owner, under a lock for all.

A lab's file is written before anything of it is made and removed after everything has gone. Its owner is a
process, known by its id and the time when it started, since ids come again. A lab whose owner has died is a
ruin, and whoever starts or ends a lab next clears it away.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from swarm.errors import FailureError
from swarm.testing.netlab.schema import Lab

FOLDER: Final = Path("/run/swarm-netlab")
"""Gone with the next boot, like the labs themselves."""


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """A process."""

    pid: int
    started: int
    """Clock ticks from the machine's boot to its start."""

    @property
    def is_alive(self) -> bool:
        """Whether it still runs; one that only waits to be reaped does not."""
        return _started(self.pid) == self.started


class State(msgspec.Struct, frozen=True, kw_only=True):
    """A lab that was started."""

    name: str
    owner: Owner
    lab: Lab
    """As it is now: rates may have changed since."""
    is_kept: bool = False
    """Whether the owner is a keeper (``keeper``), which ends the lab when it is asked to."""


def this_process() -> Owner:
    """The process that this runs in, as owner of labs."""
    started = _started(os.getpid())
    if started is None:
        raise FailureError("netlab needs /proc: mount it")
    return Owner(pid=os.getpid(), started=started)


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Nobody else starts, changes or ends a lab meanwhile."""
    import fcntl  # noqa: PLC0415 - Linux only, as are labs

    try:
        FOLDER.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(FOLDER / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FailureError(f"netlab cannot write {error.filename}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def save(state: State) -> None:
    """Keep ``state``, whole or not at all."""
    path = _file(state.name)
    fresh = path.with_suffix(".new")
    fresh.write_bytes(msgspec.json.encode(state))
    fresh.replace(path)


def load(name: str) -> State | None:
    """What is known of the lab of that name; None where there is none."""
    try:
        return msgspec.json.decode(_file(name).read_bytes(), type=State)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise FailureError(f"{_file(name)} is damaged ({error}): remove it") from None


def load_all() -> list[State]:
    """All labs, by name, those of dead owners too."""
    names = sorted(path.stem for path in FOLDER.glob("*.json")) if FOLDER.exists() else []
    return [state for state in map(load, names) if state is not None]


def forget(name: str) -> None:
    """Remove all files of the lab of that name."""
    for path in FOLDER.glob(f"{name}.*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def scratch(name: str, kind: str) -> Path:
    """Where the lab of that name keeps something of this kind."""
    return FOLDER / f"{name}.{kind}"


def _file(name: str) -> Path:
    return FOLDER / f"{name}.json"


def _started(pid: int) -> int | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # The program's name comes second, in brackets, and may hold anything, brackets too.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])
