"""Whom a node calls: everybody in a small swarm; in a larger one a part, and whom its jobs need."""

from typing import Final

from swarm.ids import PeerId
from swarm.services.context import Context
from swarm.services.gossip import Gossip
from swarm.services.jobs import Jobs

ENOUGH_LINKS: Final = 128
"""A node with so many links calls no more peers for their own sake: half of what it keeps, so that others
find room. In a smaller swarm everybody is linked with everybody, and any of them can share a job."""


class Neighbours:
    """Chooses by what gossip and jobs say."""

    def __init__(self, context: Context, gossip: Gossip, jobs: Jobs) -> None:
        self._context = context
        self._gossip = gossip
        self._jobs = jobs

    def wants(self, peer: PeerId) -> bool:
        """Whether to call ``peer``.

        One that gossip does not know is always called: it may be of another half of the swarm, which one link
        joins to this one.
        """
        return (
            len(self._context.links) < ENOUGH_LINKS or not self._gossip.knows(peer) or self._works_with(peer)
        )

    def _works_with(self, peer: PeerId) -> bool:
        """Whether a job that has not ended is coordinated by ``peer``, or planned on it."""
        return any(
            peer == job.coordinator
            or (job.plan is not None and any(stage.holder == peer for stage in job.plan.stages))
            for job in self._jobs.all()
            if not job.ended
        )
