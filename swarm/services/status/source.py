"""What the status endpoint asks of the node behind it."""

from pathlib import Path
from typing import Final, Protocol, Self

from msgspec import Struct

from swarm.services.status.document import PeerStatus, StatusDocument


class CancelReport(Struct, frozen=True, kw_only=True):
    """A job that was told to end."""

    job: str


class RevocationReport(Struct, frozen=True, kw_only=True):
    """The revocation lists that a node knows now, with the DHT key; and whom it could tell."""

    lists: tuple[bytes, ...]
    epoch_key: bytes
    told: int
    """Links on which the lists went out or were known already."""


class ExportReport(Struct, frozen=True, kw_only=True):
    """Trained weights written to a file."""

    job: str
    path: str
    tensors: int
    bytes: int


class PauseReport(Struct, frozen=True, kw_only=True):
    """How a peer stands between working and being paused."""

    peer: str
    name: str
    """The folder of its home."""
    paused: float | None
    """Since when it gives itself to no job; null while it works."""
    stages: int
    """How many stages it still holds."""

    @classmethod
    def of(cls, peer: PeerStatus) -> Self:
        """As the status of the peer says."""
        return cls(peer=peer.id, name=peer.name, paused=peer.paused, stages=peer.stages)


class Selection(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tensors of the author's ``state_dict()`` are written."""

    only_trained: bool = False
    """Only what training changes: the adapters of a frozen model, for example."""
    ema: bool = False
    """Parameters as the job's average has them; buffers, which are not averaged, as they are at the end."""


WHOLE: Final = Selection()


class StatusSource(Protocol):
    """A node, seen from its status endpoint.

    ``job`` is a job's id or an unambiguous prefix of it. The commands on jobs raise MisuseError where no job,
    or more than one, has that prefix, and FailureError where they cannot do it, with the cause.
    """

    def status(self) -> StatusDocument:
        """The present status; cheap, and without waiting."""
        ...

    def set_paused(self, *, paused: bool) -> None:
        """Let the peer give itself to no job from now on, or again.

        What it is already, it stays. Raises MisuseError where the node is none that holds stages.
        """
        ...

    async def cancel(self, job: str) -> CancelReport:
        """End the job in the whole swarm."""
        ...

    async def revoke(self, lists: tuple[bytes, ...], epoch_key: bytes) -> RevocationReport:
        """Tell the swarm of revocation lists, and the DHT key of the newest."""
        ...

    async def export(self, job: str, path: Path, selection: Selection = WHOLE) -> ExportReport:
        """Write the trained weights to ``path`` as safetensors."""
        ...
