"""Waiting for the coordinators of jobs that are out of reach: their jobs rest, for as long as is sensible."""

import asyncio
from typing import Final, Protocol

from swarm.ids import JobId, short
from swarm.protocol.patience import Patience
from swarm.services.context import Context
from swarm.services.job import Job
from swarm.wire.messages.jobs import JobState

WATCH_SECONDS: Final = 3600.0
"""The longest wait in one go: an event loop's clock may stop while a machine sleeps."""


class Change(Protocol):
    """Sets where a job stands (``swarm.services.jobs.Jobs.change``)."""

    def __call__(self, job: Job, *, state: JobState, sentence: str, until: float = 0.0) -> None:
        """``until`` when it waits, in wall seconds; 0 for no end."""


class Absence:
    """The jobs of one node whose coordinators are away."""

    def __init__(self, context: Context, change: Change) -> None:
        self._context = context
        self._change = change
        self._away: dict[JobId, asyncio.Task[None]] = {}

    def begin(self, job: Job, why: str) -> None:
        """The coordinator of ``job`` cannot be heard; ``why`` has it as its subject, as ``left: ...``."""
        if job.id in self._away:
            return
        now, wall = self._context.clock.elapsed(), self._context.clock.wall()
        patience = Patience(job.manifest.patience)
        patience.begin(now, has_steps=job.step > 0)
        until = 0.0 if patience.until is None else wall + (patience.until - now)
        who = f"waiting for its coordinator, peer {short(job.coordinator)}, which {why}"
        words = f"{who}, at step {job.step}; it goes on once that peer is back"
        self._context.story.tell("job", f"job {short(job.id)}: {words}", peer=job.coordinator)
        self._change(job, state="waiting", sentence=words, until=until)
        wait = self._wait(job, patience)
        self._away[job.id] = self._context.tasks.create_task(wait, name=f"wait for {short(job.coordinator)}")

    def end(self, job: Job) -> None:
        """Its coordinator has said how ``job`` stands, or that does not matter any more."""
        task = self._away.pop(job.id, None)
        if task is not None:
            task.cancel()

    async def _wait(self, job: Job, patience: Patience) -> None:
        """Give ``job`` up when it has been too long."""
        while patience.until is not None and not job.ended:
            now = self._context.clock.elapsed()
            if patience.is_over(now):
                self._away.pop(job.id, None)
                words = f"after {patience.seconds:.0f} s: {job.sentence}"
                self._change(job, state="failed", sentence=words)
                return
            await asyncio.sleep(min(patience.until - now, WATCH_SECONDS))
