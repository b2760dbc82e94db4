"""How a pool of links behaves."""

import os
from dataclasses import dataclass, field

import psutil

from swarm.identity.membership import TlsFiles
from swarm.protocol.session_meters import HEARTBEAT_SECONDS
from swarm.wire.limits import MAX_LINKS, MAX_RECEIVE_BUFFER_BYTES
from swarm.wire.messages.hello import Capabilities, Role


def _payload_memory() -> int:
    """A quarter of this machine's memory, where that is less than one link alone may announce."""
    return min(MAX_RECEIVE_BUFFER_BYTES, psutil.virtual_memory().total // 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolConfig:
    """How a pool behaves."""

    role: Role
    tls: TlsFiles
    """Of the identity (``Identity.tls_files``)."""
    capabilities: Capabilities
    program: str
    """Name and version of the program, for people."""
    listen: tuple[str, int] | None
    """Host (empty: all addresses of both families) and port (0: any); None does not listen."""
    boot: bytes = field(default_factory=lambda: os.urandom(8))
    """Eight random bytes that name this run of the program."""
    heartbeat: float = HEARTBEAT_SECONDS
    """Seconds of silence after which a sign of life is asked for; within three times that a link is dead."""
    up: int = 0
    down: int = 0
    """Bytes a second that all links together may send and receive; 0 does not limit."""
    call_seconds: float = 5.0
    """How long one address may take to answer a call."""
    links: int = MAX_LINKS
    """Links that this peer keeps at most."""
    payload_memory: int = field(default_factory=_payload_memory)
    """Bytes that payloads on their way in may take, those of all links together."""
