"""What the recorder says of a step: to every stage, and to the coordinator."""

import math
from typing import Any

import msgspec

from swarm.protocol.pipeline_events import SendRecord
from swarm.schedule.tuning import Tuning
from swarm.wire.codecs import Codecs
from swarm.wire.messages.jobs import JobProgress, JobSpotCheck, JobTuning, JobValidation
from swarm.wire.messages.pipeline import Fence, StepRecord, SwitchRecord, TunedRecord
from swarm.wire.numbers import measured
from swarm.wire.text import printable


def progress_of(action: SendRecord, fence: Fence, tuning: Tuning | None, later: Codecs) -> JobProgress:
    """For the coordinator. ``fence`` is any of the recorder's for this step, ``later`` the codecs to come."""
    found = action.settlement
    fields: dict[str, Any] = {
        "job": fence.job,
        "incarnation": fence.sender,
        "step": action.step,
        "outcome": found.outcome,
        "clip": found.clip,
        "norm": measured(found.norm),
        "loss": measured(found.loss),
        "cause": printable(found.cause),
    }
    if tuning is not None:
        return JobTuning(**fields, later=later, hiding=printable(tuning.hiding))
    if found.metric is None and found.spot_check is None:
        return JobProgress(**fields)
    fields["metric"] = measured(math.inf if found.metric is None else found.metric)
    if found.spot_check is None:
        return JobValidation(**fields)
    check = found.spot_check
    return JobSpotCheck(**fields, encoded=measured(check.encoded), lossless=measured(check.lossless))


def record_of(action: SendRecord, fence: Fence, codecs: Codecs, later: Codecs) -> StepRecord:
    """For the stage that ``fence`` says; ``codecs`` are those of the step, ``later`` of the one after next.

    ``later`` is empty where the policy fixes the codecs and the plan stays.
    """
    found = action.settlement
    record = StepRecord(
        fence=fence,
        outcome=found.outcome,
        clip=found.clip,
        norm=measured(found.norm),
        loss=measured(found.loss),
        cause=printable(found.cause),
    )
    fields = msgspec.structs.asdict(record) | {"codecs": codecs, "later": later}
    if action.switch is not None:
        return SwitchRecord(**fields, generation=action.switch)
    return TunedRecord(**fields) if later else record
