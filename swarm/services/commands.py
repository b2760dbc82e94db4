"""What the people of a node ask of it about jobs (``swarm.services.status.source.StatusSource``)."""

import asyncio
from pathlib import Path
from typing import Final

from swarm.errors import FailureError, MisuseError, RemoteProtocolError
from swarm.ids import short
from swarm.log import get_log
from swarm.services.export import export_weights
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.jobs import Jobs
from swarm.services.revoked import Revoked
from swarm.services.status.source import CancelReport, ExportReport, RevocationReport, Selection

LISTEN_SECONDS: Final = 3.0
"""How long a command waits for the swarm to tell it of a job."""

_log = get_log(__name__)


async def cancel_job(jobs: Jobs, prefix: str) -> CancelReport:
    """End a job in the whole swarm.

    Raises MisuseError where there is no such job, FailureError without the right to end it, or where it has
    ended already.
    """
    found = await find_job(jobs, prefix)
    if found.ended:
        raise FailureError(f"job {short(found.id)} has ended already: it is {found.state}")
    jobs.cancel(found)
    return CancelReport(job=found.id)


def tell_revocations(revoked: Revoked, lists: tuple[bytes, ...], epoch_key: bytes) -> RevocationReport:
    """Tell the swarm who was revoked; raises MisuseError where a list does not hold in it."""
    try:
        return revoked.tell(lists, epoch_key)
    except RemoteProtocolError as error:
        raise MisuseError(str(error)) from None


async def export_job(
    jobs: Jobs, blocks: JobBlocks, prefix: str, path: Path, selection: Selection
) -> ExportReport:
    """Write a job's trained weights, those that ``selection`` says.

    Raises MisuseError where there is no such job, FailureError where it has none yet, they cannot be had, or
    the file cannot be written.
    """
    found = await find_job(jobs, prefix)
    if not found.weights:
        raise FailureError(
            f"job {short(found.id)} has no trained weights: it is {found.state}, "
            f"step {found.step} of {found.manifest.steps}"
        )
    return await export_weights(found, blocks, path, selection)


async def find_job(jobs: Jobs, prefix: str) -> Job:
    """The one job whose id begins with ``prefix``; MisuseError where there is none, or more.

    A node that joined just now gets a moment to hear of it, and how it stands.
    """
    heard = asyncio.Event()

    def listen(_: Job) -> None:
        if any(job.heard for job in jobs.all() if job.id.startswith(prefix.lower())):
            heard.set()

    jobs.on_change.append(listen)
    try:
        async with asyncio.timeout(LISTEN_SECONDS):
            for job in jobs.all():
                listen(job)
            await heard.wait()
    except TimeoutError:
        _log.debug("no word from the job's coordinator", job=prefix)
    finally:
        jobs.on_change.remove(listen)
    return jobs.find(prefix)
