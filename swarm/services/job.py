"""What a node knows of one job."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from swarm.ids import JobId, PeerId
from swarm.protocol.encodings import AHEAD
from swarm.protocol.settlement import SpotCheck, Validation
from swarm.services.status.curve import LossCurve
from swarm.wire.codecs import Codecs
from swarm.wire.messages.jobs import JobProgress, JobSpotCheck, JobState, JobTuning, JobValidation
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.manifest import Manifest
from swarm.wire.records.plan import Plan

EndState = Literal["done", "failed", "cancelled"]
"""States that a job never leaves."""

_CHANGES: Final = 256
"""Changes of codecs that are remembered."""

_SPEED_WINDOW: Final = 20
"""Steps over which tokens a second are measured."""


@dataclass(slots=True)
class Job:
    """What this node knows of one job; the coordinator's word where it has heard it."""

    id: JobId
    envelope: bytes
    manifest: Manifest
    author: PeerId
    state: JobState = "waiting"
    sentence: str = "nothing heard from its coordinator yet"
    since: float = 0.0
    until: float = 0.0
    step: int = 0
    losses: list[float] = field(default_factory=list)
    """Of the steps heard of, from the first on; only followers hear all."""
    moments: list[float] = field(default_factory=list)
    """When the last records came, for the speed (``Clock.elapsed``)."""
    first: tuple[float, int] | None = None
    """When the first step came that was not caught up with, and how many there were then."""
    validations: list[Validation] = field(default_factory=list)
    """The losses of held-out samples so far, by rising step."""
    spot_check: SpotCheck | None = None
    """Of the last evaluation, where the job has codecs."""
    held_out: float = float("nan")
    """The last of them, once it is that of the trained weights."""
    weights: tuple[TensorBlob, ...] = ()
    replicas: int = 0
    kept: int | None = None
    """At the coordinator: steps after which it has all of the job's state; a lost stage costs those since."""
    heard: bool = False
    """Whether its coordinator, perhaps this peer itself, has said how it stands."""
    plan: Plan | None = None
    encodings: list[tuple[int, Codecs]] = field(default_factory=list)
    """From which step on the codecs are others than the plan's, by rising step: the last of them."""
    hiding: str = ""
    """What was said last of what communication hides behind."""
    curve: LossCurve = field(default_factory=LossCurve)
    cancellation: bytes = b""
    """The signed wish to end it, where somebody had one."""
    outcome: bytes = b""
    """How it ended, signed by its coordinator."""

    @property
    def coordinator(self) -> PeerId:
        """The peer that decides for the job."""
        return PeerId(self.manifest.council[0])

    def may_export(self, peer: PeerId) -> bool:
        """Whether ``peer`` may have the trained weights."""
        named = self.manifest.export_to
        return not named or peer == self.author or peer in named or peer in self.manifest.council

    @property
    def ended(self) -> bool:
        """Whether it will never go on."""
        return end_state(self.state) is not None

    @property
    def tokens_per_step(self) -> int:
        """Elements of the target that one step learns from."""
        manifest = self.manifest
        return manifest.tokens_per_sample * manifest.micro_batch_size * manifest.micro_batches

    @property
    def tokens_per_second(self) -> float:
        """Over the last steps; 0 before the second step."""
        moments = self.moments
        return self._speed(moments[0], moments[-1], len(moments) - 1) if moments else 0.0

    @property
    def mean_tokens_per_second(self) -> float:
        """Over all steps that were watched as they came; 0 before the second."""
        if self.first is None or not self.moments:
            return 0.0
        moment, step = self.first
        return self._speed(moment, self.moments[-1], len(self.losses) - step)

    def _speed(self, begin: float, end: float, steps: int) -> float:
        return self.tokens_per_step * steps / (end - begin) if end > begin else 0.0

    def advance(self, progress: JobProgress, now: float) -> None:
        """Take in what was agreed about a step. What is caught up with in one go says nothing of speed."""
        if not math.isfinite(progress.loss) or progress.step > self.manifest.steps:
            return
        if progress.outcome == "evaluated":
            self._validated(progress)
        if isinstance(progress, JobTuning):
            self._tuned(progress)
        if progress.outcome != "applied" or progress.step != len(self.losses):
            return
        behind = len(self.losses) < self.step
        self.losses.append(progress.loss)
        self.curve.add(progress.step, progress.loss)
        self.step = max(self.step, len(self.losses))
        if behind:
            return
        self.first = self.first or (now, len(self.losses))
        self.moments.append(now)
        del self.moments[:-_SPEED_WINDOW]

    def catch_up(self, records: Sequence[JobProgress], now: float) -> None:
        """Take in what was agreed about steps before this program began."""
        self.step = max(self.step, sum(record.outcome == "applied" for record in records))
        for record in records:
            self.advance(record, now)

    def _tuned(self, progress: JobTuning) -> None:
        """Note a change of codecs, each once, where the job has any."""
        first = progress.step + AHEAD
        old = self.encodings and self.encodings[-1][0] >= first
        if old or self.manifest.policy.quality is None:
            return
        self.encodings.append((first, progress.later))
        del self.encodings[:-_CHANGES]
        self.hiding = progress.hiding

    def _validated(self, progress: JobProgress) -> None:
        """Note an evaluation, each once: who follows a job anew may hear of some again."""
        if self.validations and self.validations[-1].step >= progress.step:
            return
        if isinstance(progress, JobSpotCheck) and math.isfinite(progress.encoded - progress.lossless):
            self.spot_check = SpotCheck(encoded=progress.encoded, lossless=progress.lossless)
        metric = progress.metric if isinstance(progress, JobValidation) else math.inf
        found = metric if math.isfinite(metric) else None
        self.validations.append(Validation(step=progress.step, loss=progress.loss, metric=found))
        if progress.step == self.manifest.steps:
            self.held_out = progress.loss


def end_state(state: JobState) -> EndState | None:
    """``state`` where it is an end, else None."""
    match state:
        case "done" | "failed" | "cancelled":
            return state
        case _:
            return None
