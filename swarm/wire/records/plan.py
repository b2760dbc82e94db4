"""The plan: stages to holders, from a named step on (DESIGN section 2). Signed by the coordinator."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from swarm.wire.codecs import CodecSpec
from swarm.wire.limits import MAX_STAGES
from swarm.wire.messages.base import Count, LongId, ShortId, StepNumber
from swarm.wire.numbers import Positive
from swarm.wire.records.blobs import Blob
from swarm.wire.text import Sentence


class StagePlan(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """One stage: operators ``first`` up to but without ``last`` of the training graph.

    ``evaluation`` is the run of the evaluation graph's operators that this stage executes. ``depth`` is the
    most micro-batches in flight at this stage. ``memory`` is what the coordinator counts for it, in bytes.
    """

    first: Count
    last: Count
    evaluation: Annotated[tuple[Count, ...], Meta(max_length=1_000_000)]
    holder: ShortId
    incarnation: Count
    depth: Annotated[int, Meta(ge=1)]
    memory: Count
    seconds: Positive
    """Predicted seconds of compute per micro-batch."""
    codec: CodecSpec = CodecSpec()
    """Of the boundary tensors that this stage sends forward, and of their gradients on the way back."""
    recompute: bool = False
    """Between its forward and its backward a micro-batch leaves only what came in; backward runs the forward
    again. ``memory`` and ``seconds`` count it."""


class Plan(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Where every stage of a job is, from ``step`` on.

    ``state`` is what the job was there (``records.state.JobSnapshot``); None where that is the manifest's.
    """

    format: Literal[1]
    job: LongId
    generation: Count
    step: StepNumber
    stages: Annotated[tuple[StagePlan, ...], Meta(min_length=1, max_length=MAX_STAGES)]
    explanation: Annotated[tuple[Sentence, ...], Meta(max_length=1000)]
    state: Blob | None = None
