"""The words of the pipeline machine (``swarm.protocol.pipeline``): a stage's role, its events and actions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from swarm.errors import LocalError
from swarm.graph.stage import Edge, SharedParameter
from swarm.ids import Generation, Incarnation, JobId, OperatorIndex, StageIndex, Step, ValueId
from swarm.protocol.passes import Passes, PassName
from swarm.protocol.settlement import Settlement
from swarm.wire.codecs import Codecs, Quality
from swarm.wire.messages.pipeline import BoundaryTensor, Phase, SharedTensor, Square, StageReport, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What a stage receives and sends for each micro-batch of one phase."""

    incoming: tuple[Edge, ...]
    outgoing: tuple[Edge, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRole:
    """One stage's part in a job, as the plan says."""

    job: JobId
    stage: StageIndex
    incarnations: tuple[Incarnation, ...]
    """Of all stages, in order."""
    depths: tuple[int, ...]
    """Of all stages, in order; they must not rise, or the stages would wait for each other."""
    passes: Passes
    micro_batches: int
    evaluation_batches: int
    """Micro-batches of the evaluation pass after the last step."""
    validation_batches: int
    """Micro-batches of an evaluation pass before that."""
    train: Route
    evaluate: Route
    shared: tuple[SharedParameter, ...]
    """Those that this stage owns or uses, and another one too."""
    clip_norm: float
    quality: Quality | None = None
    """The floor of the policy ``deadline``, under which records change codecs; None under any other."""

    spot_checks: bool = False
    """Whether each evaluation pass ends with its first micro-batch once more, without codecs."""
    catches_up: Generation | None = None
    """The number of the plan, where this stage is taken over from somebody who goes on until it holds."""

    def __post_init__(self) -> None:
        """Refuse what could never run."""
        if len(self.depths) != len(self.incarnations) or not 0 <= self.stage < len(self.depths):
            raise LocalError("a stage's role has incarnations and depths for other stages")
        if any(later > earlier for earlier, later in zip(self.depths, self.depths[1:], strict=False)):
            raise LocalError(f"depths must not rise along the pipeline: {self.depths}")
        if min(self.depths) < 1:
            raise LocalError(f"each stage must hold a micro-batch: {self.depths}")

    def batches(self, name: PassName) -> int:
        """Micro-batches of one of the passes, with the spot check."""
        if name.phase == "train":
            return self.micro_batches
        last = name.step == self.passes.steps
        return (self.evaluation_batches if last else self.validation_batches) + self.spot_checks

    def is_spot_check(self, name: PassName, micro_batch: int) -> bool:
        """Whether a micro-batch of a pass is its first one once more, as it is."""
        return self.spot_checks and name.phase == "evaluate" and micro_batch == self.batches(name) - 1

    @property
    def recorder(self) -> StageIndex:
        """The stage that settles steps: the last, since it knows the loss."""
        return StageIndex(len(self.incarnations) - 1)


# Events: what happened to the stage.


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Every stage of the plan is loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorArrived:
    """A boundary tensor from another stage. ``payload`` is opaque here and comes back in an action."""

    message: BoundaryTensor
    payload: object


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedArrived:
    """A shared parameter's gradient or value from another stage."""

    message: SharedTensor
    payload: object


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportArrived:
    """A stage's report; only the recorder gets these."""

    message: StageReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordArrived:
    """The recorder's word on the step."""

    message: StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """The forward or backward that was asked for is done."""

    loss: float | None = None
    metric: float | None = None
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The gradients are complete and measured."""

    squares: tuple[Square, ...]
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Updated:
    """The parameters are updated and changed buffers adopted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAdopted:
    """The new values of shared parameters are in place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposed:
    """Another plan may follow, with these incarnations of all stages."""

    generation: Generation
    incarnations: tuple[Incarnation, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchOrdered:
    """The next step that the recorder settles is the last one before the proposed plan."""

    generation: Generation


Event = (
    Start
    | TensorArrived
    | SharedArrived
    | ReportArrived
    | RecordArrived
    | Computed
    | Measured
    | Updated
    | SharedAdopted
    | Proposed
    | SwitchOrdered
)


# Actions: what the service is to do. Device work comes one at a time and is answered by an event.


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    """Run a forward; answer with ``Computed``. ``received`` are the payloads by value."""

    phase: Phase
    step: Step
    micro_batch: int
    received: Mapping[ValueId, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backward:
    """Run a backward; answer with ``Computed``. ``gradients`` are the payloads by value."""

    step: Step
    micro_batch: int
    gradients: Mapping[ValueId, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTensor:
    """Send an output of the work just done. Without ``value`` in that output, it is an acknowledgement."""

    phase: Phase
    step: Step
    micro_batch: int
    value: ValueId
    direction: Literal["forward", "backward"]
    target: StageIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class SendShared:
    """Send the gradient of one use to the owner, or the new value to a user."""

    step: Step
    parameter: ValueId
    operator: OperatorIndex
    direction: Literal["gradient", "value"]
    target: StageIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Complete the shared gradients (payloads by parameter and operator) and measure all; ``Measured``.

    In an evaluation pass there are none, and nothing is measured.
    """

    phase: Phase
    shared: Mapping[tuple[ValueId, OperatorIndex], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport:
    """Send the report to the recorder; the service fills in the fence and the seconds."""

    phase: Phase
    step: Step
    squares: tuple[Square, ...]
    losses: tuple[float, ...]
    fault: str
    fault_forward: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SendRecord:
    """Send what was settled to every stage, this one included, and to the coordinator."""

    phase: Phase
    step: Step
    settlement: Settlement
    reports: Mapping[int, StageReport]
    """What it was settled from, by stage."""
    switch: Generation | None = None
    """The plan that holds after the step, where it is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Clip, let the optimizer step and adopt changed buffers; answer with ``Updated``."""

    step: Step
    clip: float
    later: Codecs = ()
    """Which codecs the record agreed on for steps to come; empty where it says nothing of codecs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdoptShared:
    """Put new values of shared parameters in place; answer with ``SharedAdopted``."""

    values: Mapping[ValueId, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """Tell the sender of a data message that its incarnations are old."""

    message: BoundaryTensor | SharedTensor | StageReport | StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """All passes are done; ``held_out`` is the loss of the last one, where it was an evaluation."""

    held_out: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantReplay:
    """Ask the other holders for what they sent in a training step, and will send of it."""

    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """From ``step`` on this stage works under the proposed plan; whoever has caught up is in charge."""

    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """This stage is somebody else's from ``step`` on."""

    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Fail:
    """The step could not be applied; nothing of it stays."""

    step: Step
    cause: str


Action = (
    Forward
    | Backward
    | SendTensor
    | SendShared
    | Measure
    | SendReport
    | SendRecord
    | Update
    | AdoptShared
    | Refuse
    | Finish
    | Fail
    | WantReplay
    | Switched
    | HandedOver
)
