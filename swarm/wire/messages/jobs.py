"""Flow: jobs. Members tell each other which jobs there are; authors and followers hear how they go.

any -> any                 JobAnnounce (on link-up, and when one is new to the sender)
coordinator -> any -> any  JobOutcome (when the job ends, and on link-up)
author -> any              JobCancel
follower -> coordinator    JobFollow, answered by JobNotice now and on every change, and JobProgress
recorder -> coordinator -> follower    JobProgress, for every step, and JobValidation,
                                       for an evaluation with a metric, JobSpotCheck for one with codecs,
                                       JobTuning where codecs change
"""

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from swarm.wire.codecs import Codecs
from swarm.wire.messages.base import Count, LongId, Message, StepNumber
from swarm.wire.numbers import Fraction, Measured, WallTime
from swarm.wire.text import Sentence

JobState = Literal["waiting", "loading", "training", "finishing", "done", "failed", "cancelled"]
Envelope = Annotated[bytes, Meta(max_length=900_000)]


class JobAnnounce(Message, frozen=True, kw_only=True):
    """A job's signed manifest."""

    NUMBER: ClassVar[int] = 10
    manifest: Envelope


class JobCancel(Message, frozen=True, kw_only=True):
    """A signed ``records.manifest.Cancellation``, by the author or a member with ``organise``."""

    NUMBER: ClassVar[int] = 11
    cancellation: Envelope


class JobFollow(Message, frozen=True, kw_only=True):
    """The sender wants to hear of the job's progress from its coordinator, from step ``since`` on."""

    NUMBER: ClassVar[int] = 12
    job: LongId
    since: StepNumber


class JobProgress(Message, frozen=True, kw_only=True):
    """What was agreed about a step, for those who only watch: see ``pipeline.StepRecord``."""

    NUMBER: ClassVar[int] = 14
    job: LongId
    incarnation: Count
    """Of the last stage, whose holder settled the step."""
    step: StepNumber
    outcome: Literal["applied", "failed", "evaluated"]
    clip: Fraction
    norm: Measured
    loss: Measured
    cause: Sentence


class JobValidation(JobProgress, frozen=True, kw_only=True):
    """What an evaluation came to, where the job has a metric."""

    NUMBER: ClassVar[int] = 16
    metric: Measured
    """Mean over the micro-batches."""


class JobSpotCheck(JobValidation, frozen=True, kw_only=True):
    """What an evaluation came to of a job with codecs; its metric is infinite where the job has none."""

    NUMBER: ClassVar[int] = 18
    encoded: Measured
    """The loss of the first micro-batch, with the codecs of the step."""
    lossless: Measured
    """The same, with every element as it is."""


class JobTuning(JobProgress, frozen=True, kw_only=True):
    """A step after which codecs change, or what they hide: see ``pipeline.TunedRecord``."""

    NUMBER: ClassVar[int] = 17
    later: Codecs
    """Those of the step after next."""
    hiding: Sentence
    """What communication hides behind, or what does not hide."""


class JobNotice(Message, frozen=True, kw_only=True):
    """The coordinator's word on where a job stands."""

    NUMBER: ClassVar[int] = 13
    job: LongId
    state: Literal["waiting", "loading", "training", "finishing"]
    sentence: Sentence
    """What it waits for."""
    since: WallTime
    """Wall time at which this state began, seconds since 1970 UTC."""
    until: WallTime
    """Wall time at which waiting ends in failure; 0 where it does not."""
    step: StepNumber
    replicas: Count
    """Peers beside the author that hold every block the job needs."""


class JobOutcome(Message, frozen=True, kw_only=True):
    """How a job ended: a signed ``records.outcome.Outcome``, passed on by anybody who has it."""

    NUMBER: ClassVar[int] = 15
    outcome: Envelope
