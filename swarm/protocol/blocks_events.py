"""The words of the block machine (``swarm.protocol.blocks``): its terms, events and actions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NewType

from swarm.ids import Digest, PeerId

SourceNumber = NewType("SourceNumber", int)
"""One link, for as long as it lives; a peer that comes back is another source."""

SeekerNumber = NewType("SeekerNumber", int)
"""One call that waits for blocks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A link that may have blocks, and the peer at its other end."""

    number: SourceNumber
    peer: PeerId


# Events.


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """Somebody needs blocks that are not here.

    ``blocks`` has the most bytes that each may have. ``patience`` is how many seconds every source may lack a
    block before the seeker is told so. One that is ``gentle`` leaves the links to others: it is in no hurry.
    """

    seeker: SeekerNumber
    blocks: Mapping[Digest, int]
    patience: float
    gentle: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcesSeen:
    """The links that a seeker may ask now, all of them."""

    seeker: SeekerNumber
    sources: tuple[Source, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """A seeker has ended; what only it needs is needed no more."""

    seeker: SeekerNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyArrived:
    """A block of ``size`` bytes came in answer to a request; its hash is not known yet."""

    source: SourceNumber
    request: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyRefused:
    """An answer began that has more bytes than the block may have; it is not received."""

    source: SourceNumber
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingArrived:
    """The source does not have the block of a request."""

    source: SourceNumber
    request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockKept:
    """The bytes of a ``Keep`` had the right hash and are in the store."""

    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWrong:
    """The bytes of a ``Keep`` had another hash."""

    source: SourceNumber
    peer: PeerId
    """Its, also where the link has ended meanwhile."""
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepFailed:
    """The store did not take the bytes of a ``Keep``; the sentence says why."""

    digest: Digest
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLost:
    """The link has ended."""

    source: SourceNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The machine's deadline has passed."""


Event = (
    Seek
    | SourcesSeen
    | Forget
    | ReplyArrived
    | ReplyRefused
    | MissingArrived
    | BlockKept
    | BlockWrong
    | KeepFailed
    | SourceLost
    | Tick
)


# Actions.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Send a request for a block."""

    source: SourceNumber
    request: int
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Prove the bytes of the reply that just arrived and store them.

    Answer with ``BlockKept``, ``BlockWrong`` or ``KeepFailed``.
    """

    source: SourceNumber
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """Nobody needs the bytes of the reply that just arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LookForSources:
    """Answer with ``SourcesSeen`` for this seeker, now."""

    seeker: SeekerNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class Complete:
    """All blocks of this seeker are in the store."""

    seeker: SeekerNumber


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUp:
    """Every source has lacked a block of this seeker for too long; the sentence names it and them."""

    seeker: SeekerNumber
    sentence: str


Action = Ask | Keep | Drop | LookForSources | Complete | GiveUp
