"""The doors of a swarm that was created here: addresses of its bootstrap nodes, for invites to come.

They are kept beside the authority, in ``doors.json``. The organiser names them, and a bootstrap node that
runs on the organiser's machine adds its own. They are hints: nobody signs the addresses of an invite.
"""

from pathlib import Path
from typing import Final

import msgspec

from swarm.identity.files import read_state, write_private
from swarm.identity.invite import MAX_ADDRESSES, check_addresses
from swarm.log import get_log

log = get_log(__name__)

DOORS_FILE: Final = "doors.json"


def known_doors(authority: Path) -> tuple[str, ...]:
    """The addresses kept in the authority's folder, the newest first; none where there is no list."""
    path = authority / DOORS_FILE
    if not path.exists():
        return ()
    try:
        return msgspec.json.decode(read_state(path), type=tuple[str, ...])[:MAX_ADDRESSES]
    except msgspec.DecodeError:
        log.warning("the list of bootstrap addresses is unreadable", file=str(path))
        return ()


def remember_doors(authority: Path, addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Put ``addresses`` before those that are kept, and return what an invite may hold of them.

    Raises MisuseError for one that is no address, FailureError where the list cannot be written.
    """
    kept = known_doors(authority)
    doors = check_addresses(tuple(dict.fromkeys(addresses + kept))[:MAX_ADDRESSES])
    if doors != kept:
        write_private(authority / DOORS_FILE, msgspec.json.encode(doors) + b"\n")
    return doors
