"""The bans that a node has imposed, kept over its restarts."""

from pathlib import Path
from typing import Final

import msgspec

from swarm.errors import FailureError
from swarm.identity.files import read_state, write_private
from swarm.log import get_log
from swarm.protocol.trust import Ban

BANS_FILE: Final = "bans.json"

_log = get_log(__name__)


def load_bans(folder: Path) -> tuple[Ban, ...]:
    """The bans kept in ``folder``; none where there is no file, or an unreadable one."""
    path = folder / BANS_FILE
    if not path.exists():
        return ()
    try:
        return msgspec.json.decode(read_state(path), type=tuple[Ban, ...])
    except (msgspec.DecodeError, FailureError) as error:
        _log.warning("the list of bans is unreadable, and begins anew", file=str(path), cause=str(error))
        return ()


def save_bans(folder: Path, bans: tuple[Ban, ...]) -> None:
    """Keep ``bans`` in ``folder``; raises FailureError with the cause."""
    write_private(folder / BANS_FILE, msgspec.json.encode(bans))
