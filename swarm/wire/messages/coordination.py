"""Flow: coordination. The job's coordinator places stages; holders load them and say so.

member -> coordinator      LinkReport, Offer | LimitedOffer (after JobAnnounce, and when it changes)
coordinator -> all         PlanIssue (signed)
holder -> coordinator      StageReady | StageFailed
coordinator -> holders     PlanStart
recorder -> coordinator    JobProgress (jobs flow)
coordinator -> holders     SnapshotDue, now and then; each answers with StageSnapshot
holder -> coordinator      StageResult, after the last step
"""

from typing import Annotated, ClassVar

from msgspec import Meta

from swarm.wire.limits import MAX_LACKS, MAX_LINKS
from swarm.wire.messages.base import Count, LongId, Message, ShortId, StageNumber, StepNumber
from swarm.wire.messages.jobs import Envelope
from swarm.wire.numbers import Positive
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.state import MAX_STATE_TENSORS, StateTensor
from swarm.wire.text import Name, Sentence


class Offer(Message, frozen=True, kw_only=True):
    """A member's offer to a job: bytes of memory for stages (0 withdraws), and relative speed.

    ``holding`` says that the sender has every block that the job's manifest names.
    """

    NUMBER: ClassVar[int] = 20
    job: LongId
    memory: Count
    flops: Positive
    """Floating-point operations a second, as measured by the peer itself."""
    holding: bool


class LimitedOffer(Offer, frozen=True, kw_only=True):
    """The offer of a peer that cannot run everything that a graph may ask for."""

    NUMBER: ClassVar[int] = 27
    lacks: Annotated[tuple[Name, ...], Meta(min_length=1, max_length=MAX_LACKS)]
    """Operators (``aten.name.overload``) that its torch has not, and data types that its device has not."""


class PlanIssue(Message, frozen=True, kw_only=True):
    """A plan (``records.plan.Plan``) under the coordinator's signature."""

    NUMBER: ClassVar[int] = 21
    plan: Envelope


class StageReady(Message, frozen=True, kw_only=True):
    """The holder has loaded its stage of this plan."""

    NUMBER: ClassVar[int] = 22
    job: LongId
    generation: Count
    stage: StageNumber


class StageFailed(Message, frozen=True, kw_only=True):
    """The holder cannot go on with its stage, and why."""

    NUMBER: ClassVar[int] = 23
    job: LongId
    generation: Count
    stage: StageNumber
    sentence: Sentence


class PlanStart(Message, frozen=True, kw_only=True):
    """All stages of the plan are loaded: begin."""

    NUMBER: ClassVar[int] = 24
    job: LongId
    generation: Count


class StageResult(Message, frozen=True, kw_only=True):
    """The stage's trained parameters and buffers, kept as blocks by the sender."""

    NUMBER: ClassVar[int] = 25
    job: LongId
    generation: Count
    stage: StageNumber
    tensors: Annotated[tuple[TensorBlob, ...], Meta(max_length=100_000)]


class LinkReport(Message, frozen=True, kw_only=True):
    """To whom the sender is linked, before it offers itself to the job, and when that has changed.

    Two peers hold stages of one job only where each reports the other: what has no link carries no work.
    """

    NUMBER: ClassVar[int] = 26
    job: LongId
    peers: Annotated[tuple[ShortId, ...], Meta(max_length=MAX_LINKS)]


class SnapshotDue(Message, frozen=True, kw_only=True):
    """Copy your stages of this plan at the boundary after ``step`` steps; whoever is past it does not."""

    NUMBER: ClassVar[int] = 28
    job: LongId
    generation: Count
    step: StepNumber


class StageSnapshot(Message, frozen=True, kw_only=True):
    """What the stage was after ``step`` steps; the sender keeps it until it has sent two more."""

    NUMBER: ClassVar[int] = 29
    job: LongId
    generation: Count
    stage: StageNumber
    step: StepNumber
    tensors: Annotated[tuple[StateTensor, ...], Meta(max_length=MAX_STATE_TENSORS)]
