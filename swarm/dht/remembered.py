"""Contacts that outlive the program: a small JSON file, read as untrusted hints and nothing more."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.dht.addresses import Address, split_host_port
from swarm.dht.calls import Target
from swarm.dht.limits import MAX_REMEMBERED
from swarm.dht.table import Contact
from swarm.errors import FailureError, MisuseError
from swarm.identity.files import read_state, write_private
from swarm.ids import base32_decode
from swarm.log import get_log
from swarm.wire.messages.base import ShortId

_log = get_log(__name__)


class _Remembered(Struct, frozen=True, forbid_unknown_fields=True):
    peer: ShortId
    address: Annotated[str, Meta(max_length=64)]


class _State(Struct, frozen=True, forbid_unknown_fields=True):
    format: Literal[1]
    contacts: Annotated[list[_Remembered], Meta(max_length=MAX_REMEMBERED)]


def encode_contacts(contacts: list[Contact]) -> bytes:
    """The state file's bytes: the contacts heard last, as many as are kept."""
    recent = sorted(contacts, key=lambda contact: -contact.heard)[:MAX_REMEMBERED]
    state = _State(1, [_Remembered(contact.peer, str(contact.address)) for contact in recent])
    return msgspec.json.format(msgspec.json.encode(state), indent=1) + b"\n"


def save_contacts(path: Path, data: bytes) -> None:
    """Write the state file at once; raises FailureError with the cause. Blocks on the disk."""
    write_private(path, data)


def load_contacts(path: Path) -> list[Target]:
    """The contacts in the state file; none where there is no file, or it cannot be used (which is logged:
    the seeds of the invite are still there). Blocks on the disk."""
    if not path.exists():
        return []
    try:
        state = msgspec.json.decode(read_state(path), type=_State)
        return [
            Target(node=base32_decode(entry.peer), address=Address.of(*split_host_port(entry.address)))
            for entry in state.contacts
        ]
    except (msgspec.DecodeError, RecursionError, ValueError, MisuseError, FailureError) as error:
        _log.warning("remembered contacts cannot be used", file=path, reason=error)
        return []
