"""When a peer does nothing for jobs: idle since its last stage was let go, or paused by its user."""

import asyncio
from collections.abc import Callable
from typing import Final

from swarm.services.context import Context
from swarm.services.job import Job
from swarm.services.jobs import Jobs

PAUSED: Final = "this peer is paused by its user"
"""Why it takes no stage."""


class Pausing:
    """Whether a peer is paused. A peer that is offers nothing, which is how coordinators learn of it.

    ``offer`` makes its offer to one job as that now is.
    """

    def __init__(self, context: Context, jobs: Jobs, offer: Callable[[Job], None]) -> None:
        self.since: float | None = None
        """Wall time since when it is paused; None where it is not."""
        self.idle_since = 0.0
        """Wall time at which the last stage was let go; 0 where there was none."""
        self._context = context
        self._jobs = jobs
        self._offer = offer
        self._freed = asyncio.Event()

    def begin(self, sentence: str) -> None:
        """Withdraw all offers, and say why; nothing where it is paused already."""
        if self.since is None:
            self.since = self._context.clock.wall()
            self._context.story.tell("paused", sentence)
            self._offer_all()

    def end(self) -> None:
        """Offer again; nothing where it is not paused."""
        if self.since is not None:
            self.since = None
            self._context.story.tell("resumed", "this peer is resumed, and gives itself to jobs again")
            self._offer_all()

    def let_go(self) -> None:
        """A stage is no longer held."""
        self.idle_since = self._context.clock.wall()
        self._freed.set()

    async def until(self, free: Callable[[], bool]) -> None:
        """Wait until ``free`` holds, looking whenever a stage is let go."""
        while not free():
            self._freed.clear()
            await self._freed.wait()

    def _offer_all(self) -> None:
        for job in self._jobs.all():
            self._offer(job)
