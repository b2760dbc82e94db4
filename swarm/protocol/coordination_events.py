"""The words of the coordination machine (``swarm.protocol.coordination``): terms, events, actions."""

from dataclasses import dataclass
from typing import Final

from swarm.ids import Generation, JobId, PeerId, Step
from swarm.protocol.lines import BEGINNING, Line
from swarm.protocol.passes import Passes
from swarm.wire.messages.jobs import JobProgress, JobState
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.plan import Plan
from swarm.wire.records.state import StateTensor

NO_PLAN: Final = Generation(0)
"""Plans are numbered from 1 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTerms:
    """What the coordinator needs of a job's manifest."""

    job: JobId
    steps: int
    evaluates: bool
    """Whether an evaluation pass follows the last step."""
    validate_every: int
    """Steps between evaluation passes before that; 0 for none."""
    patience: float
    """Seconds it waits for enough peers, all waiting together, before it fails; 0 waits for ever."""
    bytes: int
    """Of all its blocks: how long loading may take depends on it."""
    keeps_lines: bool = True
    """Whether its state may be copied to its coordinator."""

    def passes(self, first_step: int) -> Passes:
        """Those of a plan that begins with ``first_step``."""
        return Passes(
            first_step=first_step,
            steps=self.steps,
            evaluates=self.evaluates,
            validate_every=self.validate_every,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a peer offers: bytes of memory for stages, and operations a second; and what it cannot run."""

    peer: PeerId
    memory: int
    flops: float
    lacks: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinationStatistics:
    """Where a job is."""

    state: JobState
    sentence: str
    since: float
    until: float
    """The ``now`` at which waiting ends in failure; 0 where it does not."""
    step: int
    loss: float
    held_out: float
    generation: int


# Events.


@dataclass(frozen=True, slots=True, kw_only=True)
class Begin:
    """The job starts here, or goes on from what was kept of it; nothing is known of the peers yet.

    ``generation`` is of the last plan that may have been issued, ``records`` have been told already.
    """

    line: Line = BEGINNING
    generation: Generation = NO_PLAN
    records: tuple[JobProgress, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferArrived:
    """A member offers memory; an offer of none withdraws an earlier one."""

    resources: Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class LinksReported:
    """A member says to whom it is linked."""

    peer: PeerId
    links: frozenset[PeerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLeft:
    """The link to a member ended. ``reason`` has the peer as its subject: ``left: its user ended it``."""

    peer: PeerId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanMade:
    """The answer to ``MakePlan``; incarnations are filled in here."""

    plan: Plan
    results: tuple[tuple[TensorBlob, ...], ...]
    """By stage, the initial values of the tensors that it owns, and so has to return trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanImpossible:
    """The answer to ``MakePlan``: these peers cannot hold the job; the sentence has the numbers."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLoaded:
    """A holder has its stage ready."""

    peer: PeerId
    generation: Generation
    stage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLost:
    """A holder cannot go on with its stage."""

    peer: PeerId
    generation: Generation
    stage: int
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressHeard:
    """The recorder's word on a step."""

    peer: PeerId
    progress: JobProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultHeard:
    """A holder's trained tensors."""

    peer: PeerId
    generation: Generation
    stage: int
    tensors: tuple[TensorBlob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeard:
    """A holder's copy of its stage at the boundary after ``step`` steps."""

    peer: PeerId
    generation: Generation
    stage: int
    step: int
    tensors: tuple[StateTensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineKept:
    """The answer to ``KeepLine``: every block of it is in this peer's store."""

    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class LineLost:
    """The other answer to ``KeepLine``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsKept:
    """Every block of the result is in this peer's store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """The author, or a member with ``organise``, wants the job to end."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """Something outside the machine ends the job."""

    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """The machine's deadline has passed."""


Event = (
    Begin
    | OfferArrived
    | LinksReported
    | PeerLeft
    | PlanMade
    | PlanImpossible
    | StageLoaded
    | StageLost
    | ProgressHeard
    | ResultHeard
    | SnapshotHeard
    | LineKept
    | LineLost
    | WeightsKept
    | Cancelled
    | Failed
    | Tick
)


# Actions.


@dataclass(frozen=True, slots=True, kw_only=True)
class MakePlan:
    """Plan for these peers, from ``line`` on; answer with ``PlanMade`` or ``PlanImpossible``.

    ``left_out`` has a sentence on each peer that lacks a link to others, for the plan to tell.
    """

    offers: tuple[Resources, ...]
    left_out: tuple[str, ...]
    generation: Generation
    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderSnapshot:
    """Tell the holders of ``plan`` to copy their stages after ``step`` steps."""

    plan: Plan
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepLine:
    """Copy the line's blocks into this peer's store; answer with ``LineKept`` or ``LineLost``."""

    line: Line


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuePlan:
    """Sign the plan and send it to every member."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A step record that is due came from who may send it: keep it, and pass it on to followers."""

    progress: JobProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPlan:
    """Tell the holders of the plan to begin."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepWeights:
    """Copy the result's blocks into this peer's store; answer with ``WeightsKept``."""

    tensors: tuple[TensorBlob, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tell:
    """Where the job stands has changed: tell its followers and holders."""

    state: JobState
    sentence: str


Action = MakePlan | IssuePlan | StartPlan | Record | OrderSnapshot | KeepLine | KeepWeights | Tell
