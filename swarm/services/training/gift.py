"""What a peer gives to jobs."""

from collections.abc import Container
from dataclasses import dataclass

from swarm.ids import PeerId
from swarm.services.job import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class HolderConfig:
    """What this peer gives to jobs."""

    memory: int
    """Bytes for stages."""
    accepts: str = "any"
    """Which jobs it offers itself to: ``any``, ``mine``, or the beginning of one job's id."""
    mine: Container[PeerId] = frozenset()
    """Authors whose jobs are ``mine``; asked for each job, since an author may come later."""

    def takes(self, job: Job) -> bool:
        """Whether this peer gives itself to ``job``."""
        match self.accepts:
            case "any":
                return True
            case "mine":
                return job.author in self.mine
            case prefix:
                return job.id.startswith(prefix)
