"""How a job ended: signed by its coordinator, so that any member may pass it on, for as long as it likes."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from swarm.wire.messages.base import LongId, StepNumber
from swarm.wire.numbers import Real, WallTime
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.text import Sentence


class Outcome(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """The last word on a job."""

    format: Literal[1]
    job: LongId
    state: Literal["done", "failed", "cancelled"]
    sentence: Sentence
    """Why it ended."""
    wall: WallTime
    """When, in seconds since 1970 UTC."""
    step: StepNumber
    """Steps done."""
    held_out: Real | None
    """Held-out loss of the trained weights; absent where the job has no held-out data or is not done."""
    weights: Annotated[tuple[TensorBlob, ...], Meta(max_length=100_000)]
    """The trained parameters and buffers, where it is done."""
