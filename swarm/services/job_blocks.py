"""A job's blocks: who may have them, and what is made of them here."""

import asyncio
from collections.abc import Iterable

from swarm.data.blobs import get_graph
from swarm.errors import FailureError
from swarm.graph.dag import Graph
from swarm.ids import Digest, short
from swarm.net.link import Link
from swarm.services.blocks import BlockExchange, Sources
from swarm.services.context import Context
from swarm.services.job import Job
from swarm.services.job_check import check_graphs
from swarm.services.withholding import Withholding
from swarm.wire.records.blobs import Blob


class JobBlocks:
    """Fetches what jobs need from whoever has it, and keeps it for as long as the job is wanted here."""

    def __init__(self, context: Context, exchange: BlockExchange, withholding: Withholding) -> None:
        self._context = context
        self._withholding = withholding
        self.exchange = exchange

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

    def forget(self, job: Job) -> None:
        """The job is forgotten, and its trained tensors with it."""
        self.release(job)
        self.exchange.store.unpin(_weights_of(job))
        for name in self._withholding.forget(job):
            self.exchange.store.discard(name)


def _weights_of(job: Job) -> str:
    return f"{job.id} weights"
