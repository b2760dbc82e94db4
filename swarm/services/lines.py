"""The lines of the jobs that this node coordinates, on its disk, for when it starts again (decision 0026)."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from swarm.data.blobs import get_blob, put_blob
from swarm.errors import FailureError, RemoteError, RemoteProtocolError, UserError
from swarm.ids import Digest, Generation, JobId, Step, short
from swarm.protocol.coordination_events import Begin
from swarm.protocol.lines import Line
from swarm.protocol.progress import Progress
from swarm.protocol.terms import JobTerms
from swarm.services.context import Context
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.line_files import LineRecord, forget_records, found_records, write_record
from swarm.wire.limits import GIB
from swarm.wire.messages.jobs import JobProgress
from swarm.wire.messages.registry import decode_message, encode_message
from swarm.wire.records.blobs import Blob

MAX_HISTORY_BYTES: Final = 1 * GIB
"""Bytes of one job's step records: some hundred for each of ten million steps."""


class _Told(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One message."""

    number: int
    body: bytes


class LineBook:
    """Keeps lines, and finds those of earlier runs. A record names no block that is not on the disk."""

    def __init__(self, folder: Path, context: Context, blocks: JobBlocks) -> None:
        self._folder = folder
        self._context = context
        self._blocks = blocks
        self._found = found_records(folder)
        self._records: dict[JobId, LineRecord] = {}
        self._order = asyncio.Lock()

    def has(self, job: Job) -> bool:
        """Whether an earlier run of this node has left something of ``job``."""
        return job.id in self._found

    async def keep_generation(self, job: Job, generation: int) -> None:
        """Before a plan is issued: no later run is to give its number to another one.

        Where that cannot be written it is told, and the job goes on.
        """
        try:
            await self._write(job, generation=generation)
        except FailureError as error:
            self._tell(f"job {short(job.id)} could not be taken up again after a restart: {error}")

    async def keep(self, job: Job, line: Line, heard: Iterable[JobProgress]) -> None:
        """Keep ``line``, whose blocks stay here for so long, and the records of the steps so far.

        Raises FailureError where there is no room, or the disk does not take it.
        """
        store, run = self._blocks.exchange.store, asyncio.get_running_loop().run_in_executor
        with store.holding() as holder:
            history = await run(None, lambda: put_blob(holder, _encoded(heard)))
            state = await self._blocks.put_state(line, holder)
            tensors = [one.tensor.blob for one in line.tensors]
            await run(
                None, store.sync, [Digest(n) for blob in (state, history, *tensors) for n in blob.blocks]
            )
            await self._write(job, step=line.step, state=state, history=history)
            if not job.ended:
                self._blocks.pin_state(job, "lists of the line", line.step, [state, history])
                self._blocks.pin_state(job, "line", line.step, tensors)

    async def resume(self, job: Job, terms: JobTerms) -> Begin:
        """Where ``job`` goes on: the newest line of which everything can be had; its first step at worst."""
        found = self._found.pop(job.id)
        known = job.plan.generation if job.plan is not None else 0
        generation = max([known, *(record.generation for record in found.records)])
        if found.trouble:
            self._tell(f"of job {short(job.id)} its newest line is lost: {found.trouble}")
            generation = max(generation, self._unused(job))
        for record in found.records:
            try:
                begin = await self._begin(job, terms, record)
            except (UserError, RemoteError) as error:
                self._tell(f"job {short(job.id)} cannot go on from step {record.step}: {error}")
            else:
                break
        else:
            record, begin = LineRecord(), Begin()
        self._records[job.id] = msgspec.structs.replace(record, generation=generation)
        return replace(begin, generation=Generation(generation))

    async def _begin(self, job: Job, terms: JobTerms, record: LineRecord) -> Begin:
        if record.state is None or record.history is None:
            return Begin()
        lists = [record.state, record.history]
        await self._intact(job, "lists of the line", record.step, lists)
        snapshot = await self._blocks.snapshot(job, record.state, record.step)
        await self._intact(job, "line", record.step, [one.tensor.blob for one in snapshot.tensors])
        records = await self._history(job, record.history)
        Progress(terms).restore(records)
        return Begin(line=Line(step=Step(record.step), tensors=snapshot.tensors), records=records)

    async def _intact(self, job: Job, of: str, step: int, blobs: list[Blob]) -> None:
        """Return once all of that is here, whole; what was damaged on the disk is fetched from others."""
        store = self._blocks.exchange.store

        def read() -> None:
            for blob in blobs:
                for name in blob.blocks:
                    store.get(Digest(name))  # which throws out what is damaged

        await asyncio.get_running_loop().run_in_executor(None, read)
        await self._blocks.fetch_state(job, of, step, blobs)

    async def _history(self, job: Job, blob: Blob) -> tuple[JobProgress, ...]:
        store, exchange = self._blocks.exchange.store, self._blocks.exchange
        names = [Digest(name) for name in blob.blocks]

        def read() -> tuple[JobProgress, ...] | None:
            data = get_blob(store, blob, limit=MAX_HISTORY_BYTES)
            return None if data is None else _decoded(data)

        return await exchange.obtain(names, read, sources=self._blocks.sources(job))

    async def _write(self, job: Job, **changes: int | Blob) -> None:
        """Change the record of ``job``, in the order of asking; one that has ended has none."""
        async with self._order:
            if not job.ended:
                record = msgspec.structs.replace(self._records.get(job.id, LineRecord()), **changes)
                await asyncio.to_thread(write_record, self._folder, job.id, record)
                self._records[job.id] = record
            self._forget_ended(job)

    def _forget_ended(self, job: Job) -> None:
        """It may have ended while its record was written."""
        if job.ended:
            forget_records(self._folder, job.id)

    def _unused(self, job: Job) -> int:
        """A generation that no plan of the job has had, since it had less than one a second."""
        return max(int(self._context.clock.wall() - job.manifest.created), 0)

    def _tell(self, sentence: str) -> None:
        self._context.story.tell("trouble", sentence)


def _encoded(heard: Iterable[JobProgress]) -> bytes:
    return msgspec.msgpack.encode([_Told(record.NUMBER, encode_message(record)) for record in heard])


def _decoded(data: bytearray) -> tuple[JobProgress, ...]:
    try:
        told = msgspec.msgpack.decode(data, type=tuple[_Told, ...])
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(f"its step records are unreadable: {error}") from None
    records = tuple(decode_message(one.number, one.body) for one in told)
    found = tuple(record for record in records if isinstance(record, JobProgress))
    if len(found) < len(records):
        raise RemoteProtocolError("its step records are of another kind")
    return found
