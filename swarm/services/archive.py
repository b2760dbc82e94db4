"""Carries jobs over restarts: takes them up at the start, keeps each when it begins, changes and ends."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

from swarm.errors import RemoteProtocolError
from swarm.ids import JobId, job_id, short
from swarm.log import get_log
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.job_files import as_kept, forget_job, keep_job, kept_jobs, restore
from swarm.services.jobs import Jobs
from swarm.services.signed import RevokedSignerError
from swarm.services.soft_state import SoftState
from swarm.wire.messages.jobs import JobState

_log = get_log(__name__)


class Archive:
    """The jobs of one node, in its folder."""

    def __init__(
        self, folder: Path, *, jobs: Jobs, blocks: JobBlocks, state: SoftState, tasks: asyncio.TaskGroup
    ) -> None:
        self._folder = folder
        self._tasks = tasks
        self._state = state
        self._order = asyncio.Lock()
        self._closed = False
        self._jobs = jobs
        self._written: dict[JobId, tuple[JobState, bool]] = {}
        """How jobs that have not ended were kept last: in which state, and whether they had steps."""
        for kept in kept_jobs(folder):
            try:
                job = jobs.recall(kept.envelope)
            except RevokedSignerError:
                forget_job(folder, job_id(kept.envelope))
            except RemoteProtocolError as error:
                _log.warning("a kept job does not hold any more", cause=str(error))
            else:
                restore(job, kept)
                blocks.pin_weights(job, [tensor.blob for tensor in job.weights])
        jobs.on_job.append(self._changed)
        jobs.on_change.append(self._changed)
        jobs.on_forget.append(self._forgotten)

    def resume(self) -> None:
        """Go on with the jobs that had not ended; the node's tasks have begun."""
        for job in self._jobs.all():
            if not job.ended:
                self._jobs.resume(job)
        self._jobs.drop_revoked()

    def close(self) -> None:
        """Keep nothing more: the node's tasks are about to end."""
        self._closed = True

    def _changed(self, job: Job) -> None:
        now = job.state, job.step > 0
        if not job.ended and self._written.get(job.id) == now:
            return
        self._written[job.id] = now
        self._start(f"job {short(job.id)} is", partial(keep_job, self._folder, as_kept(job)))

    def _forgotten(self, job: Job) -> None:
        self._written.pop(job.id, None)
        self._start(f"that job {short(job.id)} is forgotten is", partial(forget_job, self._folder, job.id))

    def _start(self, what: str, write: Callable[[], None]) -> None:
        """In the order of asking, since a job may be forgotten right after it has ended."""
        if not self._closed:
            self._tasks.create_task(self._write(what, write), name="keep job")

    async def _write(self, what: str, write: Callable[[], None]) -> None:
        async with self._order:
            await self._state.keep(what, write)
