"""Files that hold secrets: readable by their owner alone, and never seen half written.

Where the system has no such permissions (Windows), the folder's own access list protects them: homes lie
below the user's profile.
"""

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Final

from swarm.errors import FailureError

PRIVATE_FOLDER_MODE: Final = 0o700
MAX_STATE_FILE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of one state file of this package; the largest is a ledger of some hundred thousand lines."""


def make_private_folder(folder: Path) -> None:
    """Create ``folder`` and what is missing above it, for the owner alone; an existing one stays as it is."""
    try:
        folder.mkdir(mode=PRIVATE_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise FailureError(f"cannot make the folder {folder}: {_cause(error)}") from error


def write_private(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data`` at once, mode 0600; a crash leaves the old file or the new one.

    Raises FailureError with the system's cause, and then leaves no temporary file behind.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".new", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise FailureError(f"cannot write {path}: {_cause(error)}") from error


def read_state(path: Path) -> bytes:
    """The bytes of a state file; raises FailureError where it cannot be read or is absurdly large."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_STATE_FILE_BYTES + 1)
    except OSError as error:
        raise FailureError(f"cannot read {path}: {_cause(error)}") from error
    if len(data) > MAX_STATE_FILE_BYTES:
        raise FailureError(f"{path} is over {MAX_STATE_FILE_BYTES} bytes: it is not a file of this program")
    return data


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` last through a power cut; Windows and some network shares cannot."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _cause(error: OSError) -> str:
    return error.strerror or type(error).__name__
