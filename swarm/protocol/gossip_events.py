"""What the gossip machine is told, and what it asks for."""

from dataclasses import dataclass, field

from swarm.identity.chain import Member
from swarm.ids import PeerId
from swarm.wire.messages.gossip import Gossip
from swarm.wire.messages.hello import Capabilities, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """One moment on both clocks: timers run on ``elapsed``, records are dated by ``wall``; seconds."""

    elapsed: float
    wall: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What this peer's own record has to say from now on; ``credentials`` are encoded.

    ``up`` and ``down`` as in the record.
    """

    role: Role
    addresses: tuple[str, ...]
    capabilities: Capabilities
    up: int
    down: int
    credentials: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Linked:
    """A link with ``peer`` is up."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Unlinked:
    """The link with ``peer`` has ended."""

    peer: PeerId


@dataclass(frozen=True, slots=True)
class Heard:
    """A message came from ``peer``, with whom a link is up."""

    peer: PeerId
    message: Gossip


@dataclass(frozen=True, slots=True)
class Counted:
    """This node has counted a use of an invite, for who has these encoded credentials."""

    credentials: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Revoked:
    """Somebody was revoked; ``digest`` is that of the revocations which this node knows now."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class Leaving:
    """This node is about to say goodbye."""


@dataclass(frozen=True, slots=True)
class Elapsed:
    """The deadline may have passed."""


Event = Described | Linked | Unlinked | Heard | Counted | Revoked | Leaving | Elapsed


@dataclass(frozen=True, slots=True)
class Send:
    """Send ``message`` to ``peer``."""

    peer: PeerId
    message: Gossip


@dataclass(frozen=True, slots=True)
class NoteUse:
    """Another admitter let ``member`` in by a counted invite."""

    member: Member


@dataclass(frozen=True, slots=True)
class CompareRevocations:
    """``peer`` knows revocations, with this digest, that are not those which we know."""

    peer: PeerId
    digest: bytes


@dataclass(frozen=True, slots=True)
class Blame:
    """``peer`` did ``what`` in vain, which costs it credit."""

    peer: PeerId
    what: str


Action = Send | NoteUse | Blame | CompareRevocations
