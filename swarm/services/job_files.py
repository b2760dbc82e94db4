"""Jobs, kept on disk: what they are, how they ended, and where their trained weights are."""

import math
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import FailureError
from swarm.identity.files import make_private_folder, read_state, write_private
from swarm.ids import JobId, job_id
from swarm.log import get_log
from swarm.protocol.settlement import Validation
from swarm.services.job import Job, end_state
from swarm.services.line_files import forget_records
from swarm.wire.messages.jobs import Envelope, JobState
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.plan import Plan

JOBS_FOLDER: Final = "jobs"
_SUFFIX: Final = ".job"

_log = get_log(__name__)


class KeptJob(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """One job on disk; of one that has not ended, what its coordinator does not tell again."""

    format: Literal[1]
    envelope: Envelope
    state: JobState
    sentence: str
    since: float
    step: int
    losses: tuple[float, ...]
    held_out: float
    weights: Annotated[tuple[TensorBlob, ...], Meta(max_length=100_000)]
    plan: Plan | None
    cancellation: bytes
    outcome: bytes
    """The coordinator's word; empty where this node only believes that the job ended."""
    validations: tuple[Validation, ...] = ()


def as_kept(job: Job) -> KeptJob:
    """What is kept of a job."""
    return KeptJob(
        format=1,
        envelope=job.envelope,
        state=job.state,
        sentence=job.sentence,
        since=job.since,
        step=job.step,
        losses=tuple(job.losses) if job.ended else (),
        held_out=job.held_out,
        weights=job.weights,
        plan=job.plan,
        cancellation=job.cancellation,
        outcome=job.outcome,
        validations=tuple(job.validations) if job.ended else (),
    )


def keep_job(folder: Path, kept: KeptJob) -> None:
    """Write a job below ``folder``; raises FailureError with the cause."""
    make_private_folder(folder / JOBS_FOLDER)
    job = job_id(kept.envelope)
    write_private(_path(folder, job), msgspec.msgpack.encode(kept))
    if end_state(kept.state) is not None:
        forget_records(folder, job)


def forget_job(folder: Path, job: JobId) -> None:
    """Remove what was kept of a job."""
    _path(folder, job).unlink(missing_ok=True)
    forget_records(folder, job)


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
    job.validations = list(kept.validations)
    job.held_out, job.weights, job.plan = kept.held_out, kept.weights, kept.plan
    job.cancellation, job.outcome = kept.cancellation, kept.outcome
    job.heard = bool(kept.outcome or kept.cancellation)
    for step, loss in enumerate(kept.losses):
        if math.isfinite(loss):
            job.curve.add(step, loss)


def _path(folder: Path, job: JobId) -> Path:
    return folder / JOBS_FOLDER / f"{job}{_SUFFIX}"
