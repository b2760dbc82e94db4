"""Flow: training. Holders of stages send each other boundary tensors, reports and step records.

Every data message carries the fence of decision D9. The receiver refuses a lower incarnation with
``FenceRefused``, keeps a message for a later step, and otherwise takes it. No term rides on data.

    forward     holder -> next consumer     BoundaryTensor(direction=forward)
    backward    consumer -> who sent it     BoundaryTensor(direction=backward)
    boundary    user of a shared parameter -> owner   SharedTensor(direction=gradient), one per using operator
                every stage -> recorder               StageReport, RatedReport under the policy deadline
                recorder -> every stage               StepRecord, TunedRecord under the policy deadline
                owner -> users                        SharedTensor(direction=value)

The *recorder* is the holder of the last stage. Evaluation passes use the same messages with
``phase=evaluate``; a backward message is then an acknowledgement without a payload.
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta, Struct

from swarm.wire.codecs import Codecs
from swarm.wire.coding import Coding
from swarm.wire.limits import MAX_MICRO_BATCHES, MAX_PAYLOAD_BYTES, MAX_STAGES
from swarm.wire.messages.base import (
    Count,
    LongId,
    Message,
    MicroBatchNumber,
    StageNumber,
    StepNumber,
)
from swarm.wire.numbers import Fraction, Measured, Positive, Seconds
from swarm.wire.tensors import TensorHeader
from swarm.wire.text import Sentence

Phase = Literal["train", "evaluate"]


class Fence(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """Who sends to whom, as the sender believes (decision D9).

    ``source`` and ``target`` are stages; ``sender`` and ``receiver`` their incarnations.
    """

    job: LongId
    step: StepNumber
    phase: Phase
    source: StageNumber
    target: StageNumber
    sender: Count
    receiver: Count


class BoundaryTensor(Message, frozen=True, kw_only=True):
    """An activation on its way forward, or a gradient on its way back; the bytes are the payload.

    ``tensor`` is the ValueId in the phase's graph. ``header`` is absent in an acknowledgement.
    """

    NUMBER: ClassVar[int] = 30
    MAX_PAYLOAD: ClassVar[int] = MAX_PAYLOAD_BYTES
    fence: Fence
    micro_batch: MicroBatchNumber
    tensor: Count
    direction: Literal["forward", "backward"]
    header: TensorHeader | None


class CodedTensor(BoundaryTensor, frozen=True, kw_only=True):
    """A boundary tensor that a codec took apart; ``header`` describes what is rebuilt."""

    NUMBER: ClassVar[int] = 35
    header: TensorHeader
    coding: Coding


class SharedTensor(Message, frozen=True, kw_only=True):
    """A shared parameter's gradient from one using operator to the owner, or its new value to a user."""

    NUMBER: ClassVar[int] = 31
    MAX_PAYLOAD: ClassVar[int] = MAX_PAYLOAD_BYTES
    fence: Fence
    parameter: Count
    """ValueId of the parameter in the training graph."""
    operator: Count
    """Index of the using operator; 0 for values."""
    direction: Literal["gradient", "value"]
    header: TensorHeader


class Square(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Sum of squares of one parameter's gradient in float64, by ValueId of the parameter."""

    parameter: Count
    total: Annotated[float, Meta(ge=0)]
    """Infinite where it is not finite."""


class StageReport(Message, frozen=True, kw_only=True):
    """What the recorder needs of a stage to settle a step."""

    NUMBER: ClassVar[int] = 32
    fence: Fence
    squares: Annotated[tuple[Square, ...], Meta(max_length=100_000)]
    """Empty in evaluation and where the stage owns no parameters."""
    losses: Annotated[tuple[Measured, ...], Meta(max_length=MAX_MICRO_BATCHES)]
    """The last stage's loss of each micro-batch; empty elsewhere."""
    fault: Sentence
    """Where a number first stopped being finite in this stage (``blocks.1.mlp``); empty where all are."""
    fault_forward: bool
    """True where that was in the forward pass: the earliest such stage is named."""
    compute_seconds: Seconds
    """Seconds of the device thread that this step took."""


class NeighbourRate(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Bytes a second between the sender's peer and the holder of a stage next to it; 0 while not measured."""

    stage: StageNumber
    up: Positive
    down: Positive


class RatedReport(StageReport, frozen=True, kw_only=True):
    """A report with what the links of the stage's peer carried, as this end of them measured it."""

    NUMBER: ClassVar[int] = 36
    rates: Annotated[tuple[NeighbourRate, ...], Meta(max_length=MAX_STAGES)]


class StepRecord(Message, frozen=True, kw_only=True):
    """What was agreed about a step (DESIGN section 2). Sent by the recorder to every stage."""

    NUMBER: ClassVar[int] = 33
    fence: Fence
    outcome: Literal["applied", "failed", "evaluated"]
    clip: Fraction
    """Factor on all gradients; 1.0 where nothing was clipped."""
    norm: Measured
    """Global gradient norm before clipping; 0 in evaluation."""
    loss: Measured
    """Mean over the micro-batches (float64 sum in index order)."""
    cause: Sentence
    """For ``failed``: what happened and in which stage."""


class TunedRecord(StepRecord, frozen=True, kw_only=True):
    """A record that also says with which codecs the step was made, and with which the step after next is.

    Not the next one, whose tensors may arrive before this record: but nobody begins the one after it before
    every stage has reported the next one, and so has had this record.
    """

    NUMBER: ClassVar[int] = 37
    codecs: Codecs
    later: Codecs


class SwitchRecord(TunedRecord, frozen=True, kw_only=True):
    """The record of an applied step after which a proposed plan holds (decision 0028).

    Nobody begins the next step before it has this record, so all do so in the same plan. Under a policy other
    than deadline the codecs are those of the plan before, and stay.
    """

    NUMBER: ClassVar[int] = 38
    generation: Count


class FenceRefused(Message, frozen=True, kw_only=True):
    """A data message was for another incarnation; the current plan's number says how far the sender lags."""

    NUMBER: ClassVar[int] = 34
    fence: Fence
    generation: Count
