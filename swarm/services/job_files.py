"""Jobs that have ended, kept on disk: what they were, how they ended, and where their trained weights are."""

import math
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import FailureError
from swarm.identity.files import make_private_folder, read_state, write_private
from swarm.ids import JobId
from swarm.log import get_log
from swarm.services.jobs import Job
from swarm.wire.messages.jobs import Envelope
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.plan import Plan

JOBS_FOLDER: Final = "jobs"
_SUFFIX: Final = ".job"

_log = get_log(__name__)


class KeptJob(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """One ended job on disk."""

    format: Literal[1]
    envelope: Envelope
    state: Literal["done", "failed", "cancelled"]
    sentence: str
    since: float
    step: int
    losses: tuple[float, ...]
    held_out: float
    weights: Annotated[tuple[TensorBlob, ...], Meta(max_length=100_000)]
    plan: Plan | None


def keep_job(folder: Path, job: Job) -> None:
    """Write an ended job below ``folder``; raises FailureError with the cause."""
    if job.state not in {"done", "failed", "cancelled"}:
        return
    make_private_folder(folder / JOBS_FOLDER)
    kept = KeptJob(
        format=1,
        envelope=job.envelope,
        state=job.state,
        sentence=job.sentence,
        since=job.since,
        step=job.step,
        losses=tuple(job.losses),
        held_out=job.held_out,
        weights=job.weights,
        plan=job.plan,
    )
    write_private(_path(folder, job.id), msgspec.msgpack.encode(kept))


def forget_job(folder: Path, job: JobId) -> None:
    """Remove what was kept of a job."""
    _path(folder, job).unlink(missing_ok=True)


def kept_jobs(folder: Path) -> list[KeptJob]:
    """The jobs kept below ``folder``; an unreadable file is left out, with a warning."""
    found = []
    for path in sorted((folder / JOBS_FOLDER).glob(f"*{_SUFFIX}")):
        try:
            found.append(msgspec.msgpack.decode(read_state(path), type=KeptJob))
        except (msgspec.DecodeError, FailureError) as error:
            _log.warning("a kept job is unreadable", file=str(path), cause=str(error))
    return found


def restore(job: Job, kept: KeptJob) -> None:
    """Put into ``job`` what was kept of it."""
    job.state, job.sentence, job.since = kept.state, kept.sentence, kept.since
    job.step, job.losses = kept.step, list(kept.losses)
    job.held_out, job.weights, job.plan, job.heard = kept.held_out, kept.weights, kept.plan, True
    for step, loss in enumerate(kept.losses):
        if math.isfinite(loss):
            job.curve.add(step, loss)


def _path(folder: Path, job: JobId) -> Path:
    return folder / JOBS_FOLDER / f"{job}{_SUFFIX}"
