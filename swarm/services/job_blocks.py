"""A job's blocks: who may have them, and what is made of them here."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import msgspec
from msgspec.structs import replace

from swarm.data.blobs import get_blob, get_graph, put_blob
from swarm.data.blocks import Keeps
from swarm.errors import FailureError, RemoteProtocolError
from swarm.graph.dag import Graph
from swarm.ids import Digest, JobId, short
from swarm.net.link import Link
from swarm.protocol.lines import Line
from swarm.services.blocks import BlockExchange, Sources
from swarm.services.context import Context
from swarm.services.job import Job
from swarm.services.job_check import check_graphs, check_state
from swarm.services.withholding import Withholding
from swarm.wire.limits import MAX_STATE_BYTES
from swarm.wire.records.blobs import Blob
from swarm.wire.records.plan import Plan
from swarm.wire.records.state import JobSnapshot, StateTensor

KEPT_STATES: Final = 2
"""States of one stage that stay: the last, and the one before, until the last is known to be a line."""


class JobBlocks:
    """Fetches what jobs need from whoever has it, and keeps it for as long as the job is wanted here."""

    def __init__(self, context: Context, exchange: BlockExchange, withholding: Withholding) -> None:
        self._context = context
        self._withholding = withholding
        self.exchange = exchange
        self._states: dict[JobId, dict[str, list[str]]] = {}
        """Under which names the last states of each stage are pinned, oldest first."""

    def sources(self, job: Job) -> Sources:
        """The links that may have the job's blocks: author and coordinator first, then every other."""

        def found() -> list[Link]:
            links = self._context.links
            first = [links[peer] for peer in (job.author, job.coordinator) if peer in links]
            return list(dict.fromkeys([*first, *links.values()]))

        return found

    async def fetch(self, job: Job, blobs: Iterable[Blob]) -> None:
        """Return once these blobs are here, where they stay until :meth:`release`.

        Raises FailureError where nobody has them, or where they do not fit.
        """
        wanted = list(blobs)
        self.exchange.store.pin(job.id, (Digest(name) for blob in wanted for name in blob.blocks))
        await self.exchange.fetch_blobs(wanted, sources=self.sources(job))

    async def graphs(self, job: Job) -> tuple[Graph, Graph]:
        """The training and the evaluation graph.

        Raises FailureError where nobody has them, RemoteProtocolError where they are not this job's graphs.
        """
        train = await self._graph(job, job.manifest.graph)
        evaluate = await self._graph(job, job.manifest.evaluation)
        await asyncio.get_running_loop().run_in_executor(None, check_graphs, job.manifest, train, evaluate)
        return train, evaluate

    async def _graph(self, job: Job, blob: Blob) -> Graph:
        await self.fetch(job, [blob])
        store = self.exchange.store
        names = [Digest(name) for name in blob.blocks]
        return await self.exchange.obtain(names, lambda: get_graph(store, blob), sources=self.sources(job))

    def pin_weights(self, job: Job, blobs: Iterable[Blob]) -> None:
        """Keep trained tensors until the job is forgotten, whatever else is released; for whom it says."""
        names = [Digest(name) for blob in blobs for name in blob.blocks]
        self._withholding.withhold(job, names)
        self.exchange.store.pin(_weights_of(job), names)

    def pin_state(self, job: Job, of: str, step: int, blobs: Iterable[Blob]) -> None:
        """Keep what ``of`` (a stage, a line) was after ``step`` steps, and one state before that."""
        store, owner = self.exchange.store, f"{job.id} {of} after {step}"
        store.pin(owner, (Digest(name) for blob in blobs for name in blob.blocks))
        owners = self._states.setdefault(job.id, {}).setdefault(of, [])
        owners[:] = [*(one for one in owners if one != owner), owner]
        for old in owners[:-KEPT_STATES]:
            store.unpin(old)
        del owners[:-KEPT_STATES]

    async def fetch_state(self, job: Job, of: str, step: int, blobs: Iterable[Blob]) -> None:
        """As :meth:`pin_state`, once all of it is here; what cannot be had in whole takes no state's place.

        Raises as :meth:`fetch` does.
        """
        wanted = list(blobs)
        async with self.fetched(job, of, step, wanted, gentle=False):
            self.pin_state(job, of, step, wanted)

    @asynccontextmanager
    async def fetched(
        self, job: Job, of: str, step: int, blobs: Sequence[Blob], *, gentle: bool
    ) -> AsyncIterator[None]:
        """All of that is here, and stays until the context ends; ``gentle`` leaves the links to training.

        Raises as :meth:`fetch` does.
        """
        store, owner = self.exchange.store, f"{job.id} {of} after {step}, on its way"
        store.pin(owner, (Digest(name) for blob in blobs for name in blob.blocks))
        try:
            await self.exchange.fetch_blobs(blobs, sources=self.sources(job), gentle=gentle)
            yield
        finally:
            store.unpin(owner)

    async def begun_at(self, job: Job, plan: Plan, line: Line) -> Plan:
        """``plan``, which begins at ``line``, with the blob that says where its state is."""
        if not line.tensors:
            return plan
        with self.exchange.store.holding() as held:
            blob = await self.put_state(line, held)
            self.exchange.store.pin(job.id, map(Digest, blob.blocks))
        return replace(plan, step=line.step, state=blob)

    async def put_state(self, line: Line, keeps: Keeps) -> Blob:
        """Put the list of what the job was at ``line``."""
        state = JobSnapshot(format=1, step=line.step, tensors=line.tensors)
        written = msgspec.msgpack.encode(state)
        put = partial(put_blob, keeps, written)
        return await asyncio.get_running_loop().run_in_executor(None, put)

    async def state(self, job: Job, plan: Plan) -> frozenset[StateTensor]:
        """What the job was where ``plan`` begins; nothing where that is what its manifest says.

        Raises as :meth:`snapshot` does.
        """
        if plan.state is None:
            return frozenset()
        return frozenset((await self.snapshot(job, plan.state, plan.step)).tensors)

    async def snapshot(self, job: Job, blob: Blob, step: int) -> JobSnapshot:
        """The list of what the job was after ``step`` steps.

        Raises FailureError where nobody has it, RemoteProtocolError where it is not this job's state.
        """
        if blob.size > MAX_STATE_BYTES:
            raise RemoteProtocolError(f"a list of state of {blob.size} bytes is over the limit")
        await self.fetch(job, [blob])
        store, names = self.exchange.store, [Digest(name) for name in blob.blocks]
        written = await self.exchange.obtain(
            names, lambda: get_blob(store, blob, limit=MAX_STATE_BYTES), sources=self.sources(job)
        )
        try:
            found = msgspec.msgpack.decode(written, type=JobSnapshot)
        except msgspec.DecodeError as error:
            raise RemoteProtocolError(f"the plan's state is none: {error}") from None
        check_state(found, step, job.manifest)
        return found

    def may_export(self, job: Job) -> bool:
        """Whether this peer may have the trained weights."""
        return job.may_export(self._context.identity.peer)

    async def fetch_weights(self, job: Job, blobs: Iterable[Blob]) -> None:
        """As :meth:`fetch`, of trained tensors, which this node passes on to whom the job says.

        Raises FailureError also where this peer may not have them.
        """
        if not self.may_export(job):
            named = ", ".join(map(short, job.manifest.export_to))
            raise FailureError(
                f"the weights of job {short(job.id)} are for its author {short(job.author)} and {named}: "
                "ask one of them"
            )
        wanted = list(blobs)
        self._withholding.withhold(job, (Digest(name) for blob in wanted for name in blob.blocks))
        await self.fetch(job, wanted)

    def release(self, job: Job) -> None:
        """The job has ended: what it needed to run may make room for others."""
        self.exchange.store.unpin(job.id)
        for owners in self._states.pop(job.id, {}).values():
            for owner in owners:
                self.exchange.store.unpin(owner)

    def forget(self, job: Job) -> None:
        """The job is forgotten, and its trained tensors with it."""
        self.release(job)
        self.exchange.store.unpin(_weights_of(job))
        for name in self._withholding.forget(job):
            self.exchange.store.discard(name)


def _weights_of(job: Job) -> str:
    return f"{job.id} weights"
