"""Telling coordinators to whom this peer is linked: only peers that can talk hold stages together."""

import asyncio
from typing import Final

from swarm.ids import PeerId
from swarm.services.context import Context, Service
from swarm.services.job import Job
from swarm.services.jobs import Jobs
from swarm.wire.messages.coordination import LinkReport

REPORT_SECONDS: Final = 0.5
"""From a change of links to the report: others that change meanwhile are in it."""


class Acquaintance(Service):
    """Reports links to the coordinators of jobs that may still be planned."""

    def __init__(self, context: Context, jobs: Jobs) -> None:
        self._context = context
        self._jobs = jobs
        self._due = False
        jobs.on_job.append(self._report)

    def on_up(self, peer: PeerId) -> None:
        """A link is up."""
        for job in self._jobs.all():
            if job.coordinator == peer:
                self._report(job)
        self._changed()

    def on_down(self, peer: PeerId, reason: str) -> None:
        """A link has ended."""
        self._changed()

    def _changed(self) -> None:
        if not self._due and any(not job.ended for job in self._jobs.all()):
            self._due = True
            self._context.tasks.create_task(self._report_all(), name="report links")

    async def _report_all(self) -> None:
        await asyncio.sleep(REPORT_SECONDS)
        self._due = False
        for job in self._jobs.all():
            self._report(job)

    def _report(self, job: Job) -> None:
        if not job.ended:
            self._context.send(job.coordinator, LinkReport(job=job.id, peers=self._context.peers()))
