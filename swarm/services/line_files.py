"""Where jobs go on from, kept on their coordinator's disk: one small file a job, and the one before it.

A file names blocks, and is written when those are on the disk (decision 0026). It carries its own hash: one
that was damaged is found out, and then the file before it counts.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from swarm.errors import FailureError
from swarm.identity.files import make_private_folder, read_state, sync_folder, write_private
from swarm.ids import DIGEST_LENGTH, JobId, digest
from swarm.log import get_log
from swarm.wire.messages.base import Count, StepNumber
from swarm.wire.records.blobs import Blob

LINES_FOLDER: Final = "lines"
NEWEST: Final = ".line"
BEFORE: Final = ".before"

_log = get_log(__name__)


class LineRecord(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What a coordinator needs to take its job up again."""

    format: Literal[1] = 1
    generation: Count = 0
    """Of the newest plan that may have been issued."""
    step: StepNumber = 0
    state: Blob | None = None
    """A ``records.state.JobSnapshot`` of that step; None where the job goes on from its manifest."""
    history: Blob | None = None
    """The records of steps that were told by then (``swarm.services.lines``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRecords:
    """What is left of a job's files."""

    records: tuple[LineRecord, ...]
    """Those that can be read, the newest first."""
    trouble: str
    """Why the newest there was is not the first of them; empty where it is."""


def write_record(folder: Path, job: JobId, record: LineRecord) -> None:
    """Keep ``record`` durably, and that of the line before it; raises FailureError with the cause."""
    make_private_folder(folder / LINES_FOLDER)
    sync_folder(folder)
    path = _path(folder, job, NEWEST)
    try:
        newest = _read(path)
    except FailureError as error:
        _log.debug("there is no line before it", job=job, cause=str(error))
    else:
        if newest.step != record.step:
            write_private(_path(folder, job, BEFORE), _sealed(newest))
    write_private(path, _sealed(record))


def forget_records(folder: Path, job: JobId) -> None:
    """Remove what was kept of a job."""
    for suffix in (NEWEST, BEFORE):
        _path(folder, job, suffix).unlink(missing_ok=True)


def found_records(folder: Path) -> dict[JobId, FoundRecords]:
    """What is kept below ``folder``, by job."""
    paths = [path for suffix in (NEWEST, BEFORE) for path in (folder / LINES_FOLDER).glob(f"*{suffix}")]
    return {job: _found(folder, job) for job in {JobId(path.stem) for path in paths}}


def _found(folder: Path, job: JobId) -> FoundRecords:
    records, trouble = [], ""
    for suffix in (NEWEST, BEFORE):
        try:
            records.append(_read(_path(folder, job, suffix)))
        except FailureError as error:
            if suffix == NEWEST:
                trouble = str(error)
    return FoundRecords(records=tuple(records), trouble=trouble)


def _sealed(record: LineRecord) -> bytes:
    data = msgspec.msgpack.encode(record)
    return digest(data).encode("ascii") + data


def _read(path: Path) -> LineRecord:
    whole = read_state(path)
    said, data = whole[:DIGEST_LENGTH], whole[DIGEST_LENGTH:]
    if said != digest(data).encode("ascii"):
        raise FailureError(f"{path} is damaged")
    try:
        return msgspec.msgpack.decode(data, type=LineRecord)
    except msgspec.DecodeError as error:
        raise FailureError(f"{path} is unreadable: {error}") from None


def _path(folder: Path, job: JobId, suffix: str) -> Path:
    return folder / LINES_FOLDER / f"{job}{suffix}"
