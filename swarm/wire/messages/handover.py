"""Flow: hand-over. A stage moves to another peer while its job trains (decisions D10, 0028).

coordinator -> holder                StageWanted: copy the stage at its next boundary
holder -> coordinator                StageCopy
coordinator -> holders, newcomer     PlanProposal (signed)
newcomer -> every other holder       ReplayWanted, one step after the other; ReplayMissing where it was let go
every holder -> coordinator           StageReady of the proposed plan
newcomer -> coordinator               StageReady, once it has caught up
coordinator -> recorder              PlanStart of the proposed plan
recorder -> every stage              SwitchRecord (pipeline flow): from the next step on it is the plan
recorder -> coordinator              PlanTaken
coordinator -> all of these          ProposalWithdrawn, where it comes to nothing

coordinator -> holders               LineCommitted, now and then: what was sent before that step may go
"""

from typing import ClassVar

from swarm.wire.codecs import Codecs
from swarm.wire.messages.base import Count, LongId, Message, StageNumber, StepNumber
from swarm.wire.messages.coordination import StageSnapshot
from swarm.wire.messages.jobs import Envelope
from swarm.wire.text import Sentence


class PlanProposal(Message, frozen=True, kw_only=True):
    """A plan under its coordinator's signature that is not yet in force: it gives one stage to a newcomer.

    Its ``step`` and ``state`` are those of the stage's copy, from which the newcomer catches up.
    """

    NUMBER: ClassVar[int] = 60
    plan: Envelope


class ProposalWithdrawn(Message, frozen=True, kw_only=True):
    """The proposed plan does not come: whoever was to have a stage by it lets go of it."""

    NUMBER: ClassVar[int] = 67
    job: LongId
    generation: Count


class StageWanted(Message, frozen=True, kw_only=True):
    """Copy your stage of this plan at its next step boundary."""

    NUMBER: ClassVar[int] = 61
    job: LongId
    generation: Count
    stage: StageNumber


class StageCopy(StageSnapshot, frozen=True, kw_only=True):
    """The answer: the state of a stage, with the values of the parameters that it uses and another owns."""

    NUMBER: ClassVar[int] = 66
    codecs: Codecs
    """Those of all stages in step ``step``, and in the one after it."""
    later: Codecs


class ReplayWanted(Message, frozen=True, kw_only=True):
    """Send what your stages sent to ``stage`` in training step ``step``, and what they will send of it still.

    ``generation`` is that of the proposed plan, in whose incarnations it is to come.
    """

    NUMBER: ClassVar[int] = 62
    job: LongId
    generation: Count
    stage: StageNumber
    step: StepNumber


class ReplayMissing(Message, frozen=True, kw_only=True):
    """The answer to ``ReplayWanted`` where what was sent is no longer kept, and why."""

    NUMBER: ClassVar[int] = 63
    job: LongId
    generation: Count
    stage: StageNumber
    sentence: Sentence


class PlanTaken(Message, frozen=True, kw_only=True):
    """The record of the step before ``step`` says that the proposed plan holds from ``step`` on."""

    NUMBER: ClassVar[int] = 64
    job: LongId
    generation: Count
    step: StepNumber


class LineCommitted(Message, frozen=True, kw_only=True):
    """What every stage was after ``step`` steps is kept: nobody needs again what changed them before."""

    NUMBER: ClassVar[int] = 65
    job: LongId
    generation: Count
    step: StepNumber
