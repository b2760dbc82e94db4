"""What a coordinator goes by: the terms of a job, and what peers offer it."""

from dataclasses import dataclass

from swarm.ids import JobId, PeerId
from swarm.protocol.passes import Passes


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
