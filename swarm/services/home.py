"""Where a node keeps its state, and the lock that keeps a second one out.

A home base (``--home``) has one folder per node (``--name``), and ``authorities/`` with one folder per swarm
created here. In a node's folder ``lock`` is locked by the running process: the system frees it however the
process ends, so that it cannot be stale. ``running.json`` beside it says which process that is and where it
listens; it is believed only if a process with that id *and* that start time is alive, because process ids are
used again.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import psutil

from swarm.errors import FailureError, MisuseError
from swarm.identity.files import make_private_folder, write_private
from swarm.services.filelock import try_lock, unlock

AUTHORITIES: Final = "authorities"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_RESERVED: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_START_TOLERANCE: Final = 5.0
"""Seconds by which two readings of one process's start time may differ: some systems derive it from the
clock, which may be stepped in between."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """What the process that runs in a home says of itself. ``control`` is secret."""

    name: str
    pid: int
    started: float
    """When the process was made, wall seconds, as the system says."""
    role: str
    """What it does in the swarm (``peer``, ``bootstrap``, ``author``); empty until it is known."""
    status_url: str
    """Empty until its status endpoint listens."""
    control: str
    """The token for its status endpoint."""


def check_name(name: str, *, what: str) -> str:
    """``name`` if it can be a folder on every system, else MisuseError."""
    if not _NAME.fullmatch(name) or name.endswith(".") or _RESERVED.fullmatch(name):
        raise MisuseError(
            f"{name!r} cannot be {what}: use up to 63 letters, digits, dots, dashes and underscores"
        )
    return name


class Home:
    """The folder ``name`` under ``base``. Making one touches nothing; raises MisuseError for a bad name."""

    __slots__ = ("base", "folder", "name")

    def __init__(self, base: Path, name: str) -> None:
        if check_name(name, what="the name of a home").lower() == AUTHORITIES:
            raise MisuseError(f"--name {name} is taken: that folder holds the swarms created here")
        self.base = base
        self.name = name
        self.folder = base / name

    def running(self) -> Running | None:
        """The process that runs in this home now, if any."""
        try:
            said = msgspec.json.decode((self.folder / "running.json").read_bytes(), type=Running)
        except (OSError, msgspec.DecodeError):
            return None
        return said if _is_alive(said) else None

    def require_free(self) -> None:
        """Raise what :meth:`lock` raises where another process owns the home; makes nothing."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR)
        except OSError:  # nobody was here yet, or `lock` will say what is wrong
            return
        try:
            if not try_lock(descriptor):
                raise FailureError(self._in_use())
            unlock(descriptor)
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def lock(self) -> Iterator["HomeLock"]:
        """Own the home until the context ends.

        Raises FailureError where another process does, naming it, or where the folder cannot be written.
        """
        make_private_folder(self.folder)
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise FailureError(
                f"the home {self.folder} cannot be used: {error.strerror or error}: "
                "give this one another folder with --home"
            ) from error
        try:
            if not try_lock(descriptor):
                raise FailureError(self._in_use())
            lock = HomeLock(self)
            lock.announce()
            try:
                yield lock
            finally:
                (self.folder / "running.json").unlink(missing_ok=True)
                unlock(descriptor)
        finally:
            os.close(descriptor)

    def status_token(self) -> str:
        """The token with which others may read this home's status endpoint; made when first asked for."""
        path = self.folder / "status-token"
        try:
            return path.read_text(encoding="ascii").strip()
        except FileNotFoundError:
            token = secrets.token_urlsafe(24)
            write_private(path, token.encode("ascii") + b"\n")
            return token

    def _in_use(self) -> str:
        owner = self.running()
        return (
            f"home in use by {f'process {owner.pid}' if owner else 'another process'}: give this one --name"
        )


class HomeLock:
    """Proof of owning ``home``. ``control`` is the token of this run."""

    __slots__ = ("control", "home")

    def __init__(self, home: Home) -> None:
        self.home = home
        self.control = secrets.token_urlsafe(32)

    def announce(self, status_url: str = "", *, role: str = "") -> None:
        """Tell other programs of this user what this process is, and where it listens."""
        said = Running(
            name=self.home.name,
            pid=os.getpid(),
            started=psutil.Process().create_time(),
            role=role,
            status_url=status_url,
            control=self.control,
        )
        write_private(self.home.folder / "running.json", msgspec.json.encode(said))


def running_nodes(base: Path) -> list[Running]:
    """The processes that run in the homes under ``base``, by name."""
    found = [Home(base, name).running() for name in node_names(base)]
    return [running for running in found if running is not None]


def node_names(base: Path) -> list[str]:
    """The names of the homes under ``base``."""
    try:
        names = sorted(entry.name for entry in base.iterdir() if entry.is_dir())
    except OSError:
        return []
    return [name for name in names if name.lower() != AUTHORITIES and _NAME.fullmatch(name)]


def authority_folder(base: Path, name: str) -> Path:
    """Where the authority of the swarm ``name`` is kept; raises MisuseError for a bad name."""
    return base / AUTHORITIES / check_name(name, what="the name of a swarm")


def _is_alive(said: Running) -> bool:
    """A process that was killed counts as ended, also before whoever started it has asked after it."""
    try:
        process = psutil.Process(said.pid)
        is_it = abs(process.create_time() - said.started) <= _START_TOLERANCE
        return is_it and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.NoSuchProcess, ValueError):
        return False
    except psutil.AccessDenied:
        return True
