"""A job's blocks: who may have them, and what is made of them here."""

import asyncio
from collections.abc import Iterable

from swarm.data.blobs import get_graph
from swarm.graph.dag import Graph
from swarm.ids import Digest
from swarm.net.link import Link
from swarm.services.blocks import BlockExchange, Sources
from swarm.services.context import Context
from swarm.services.job import Job
from swarm.services.job_check import check_graphs
from swarm.wire.records.blobs import Blob


class JobBlocks:
    """Fetches what jobs need from whoever has it, and keeps it for as long as the job is wanted here."""

    def __init__(self, context: Context, exchange: BlockExchange) -> None:
        self._context = context
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
        """Keep trained tensors until the job is forgotten, whatever else is released."""
        self.exchange.store.pin(_weights_of(job), (Digest(name) for blob in blobs for name in blob.blocks))

    def release(self, job: Job) -> None:
        """The job has ended: what it needed to run may make room for others."""
        self.exchange.store.unpin(job.id)

    def forget(self, job: Job) -> None:
        """The job is forgotten, and its trained tensors with it."""
        self.release(job)
        self.exchange.store.unpin(_weights_of(job))


def _weights_of(job: Job) -> str:
    return f"{job.id} weights"
