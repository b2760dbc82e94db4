"""The words of the coordination machine (``swarm.protocol.coordination``): events and actions."""

from dataclasses import dataclass
from typing import Final

from swarm.ids import Generation, PeerId, Step
from swarm.protocol.lines import BEGINNING, Line
from swarm.protocol.terms import Resources
from swarm.wire.codecs import Codecs
from swarm.wire.messages.jobs import JobProgress, JobState
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.plan import Plan
from swarm.wire.records.state import StateTensor

NO_PLAN: Final = Generation(0)
"""Plans are numbered from 1 on."""


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
class CopyHeard(SnapshotHeard):
    """A holder's copy of its stage for whoever is to have it."""

    codecs: Codecs
    """Those of all stages in the step that comes next, and in the one after it."""
    later: Codecs


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessorMade:
    """The answer to ``MakeSuccessor``: the plan to propose; its number is filled in here."""

    copy: CopyHeard
    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessorImpossible:
    """The other answer: none of the peers can have the stage, and why."""

    copy: CopyHeard
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenHeard:
    """The recorder's word that the proposed plan holds from ``step`` on."""

    peer: PeerId
    generation: Generation
    step: Step


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
    CopyHeard
    | SuccessorMade
    | SuccessorImpossible
    | TakenHeard
    | Begin
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
class CommitLine:
    """Tell the holders of ``plan`` that what was sent before ``step`` is not needed any more."""

    plan: Plan
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderCopy:
    """Tell the holder of ``stage`` to copy it at its next boundary."""

    plan: Plan
    stage: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeSuccessor:
    """Make a plan that gives ``stage`` of ``plan`` to the first of ``takers`` that can run it.

    To be answered with ``SuccessorMade`` or ``SuccessorImpossible``.
    """

    plan: Plan
    stage: int
    takers: tuple[Resources, ...]
    copy: CopyHeard


@dataclass(frozen=True, slots=True, kw_only=True)
class Propose:
    """Sign the plan, and send it to its holders and to those of the plan in force."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdraw:
    """Tell whoever was sent the proposed plan that it does not come."""

    plan: Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchPlan:
    """Tell the recorder to let the proposed plan begin."""

    plan: Plan
    recorder: PeerId


@dataclass(frozen=True, slots=True, kw_only=True)
class TellPlan:
    """The proposed plan is in force: tell every member."""

    plan: Plan


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


Moving = OrderCopy | MakeSuccessor | Propose | Withdraw | SwitchPlan
"""What a hand-over asks for."""

Action = (
    MakePlan
    | IssuePlan
    | StartPlan
    | Record
    | OrderSnapshot
    | KeepLine
    | CommitLine
    | KeepWeights
    | Tell
    | TellPlan
    | Moving
)
