"""What a stage says of itself: part of the pipeline machine."""

from dataclasses import dataclass
from typing import Literal

from swarm.protocol.arrivals import Pass
from swarm.protocol.pipeline_events import StageRole

State = Literal["idle", "working", "measuring", "reported", "updating", "adopting", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineStatistics:
    """Where a stage is."""

    state: State
    step: int
    phase: str
    forwards: int
    backwards: int
    waiting: str
    """What it waits for; empty while it computes or has nothing to do."""
    since: float
    """The ``now`` at which it entered the state."""
    duplicates: int


def waits_for(role: StageRole, state: State, current: Pass) -> str:
    """What a stage in ``state`` waits for that has nothing to compute, in words."""
    match state:
        case "working" if current.work is not None:
            direction, batch, value = current.missing(current.work)[0]
            edges = current.route.incoming if direction == "forward" else current.route.outgoing
            source = next(edge.stage for edge in edges if edge.value == value)
            what = "activation" if direction == "forward" else "gradient"
            return f"the {what} of micro-batch {batch} from stage {source + 1}"
        case "measuring":
            return "gradients of shared parameters"
        case "reported":
            return f"the record of step {current.step} from stage {role.recorder + 1}"
        case _:
            return "new values of shared parameters"
