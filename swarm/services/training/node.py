"""A node with torch: one that holds stages, or publishes jobs, or writes trained weights."""

import asyncio
import contextlib
from collections.abc import Container
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import torch

from swarm.clock import Clock
from swarm.graph.operators import ALLOWED, operators_digest
from swarm.identity.membership import Identity
from swarm.ids import PeerId
from swarm.schedule.units import format_count
from swarm.services.context import Service, Services
from swarm.services.networks import Networks
from swarm.services.node import Node, NodeConfig
from swarm.services.node_status import HeldStage
from swarm.services.training.acquaintance import Acquaintance
from swarm.services.training.author import Author
from swarm.services.training.gift import HolderConfig
from swarm.services.training.handovers import HandOvers
from swarm.services.training.holder import Holder
from swarm.services.training.pausing import PAUSED
from swarm.train.abilities import lacking
from swarm.train.device import DeviceThread, like_machines
from swarm.train.speed import measure_flops
from swarm.wire.messages.hello import Capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class Gift:
    """What a peer gives to jobs. ``memory`` 0 gives nothing: an author's node."""

    device: torch.device
    memory: int
    """Bytes for stages."""
    accepts: str = "any"
    """Which jobs: ``any``, ``mine``, or the beginning of one job's id."""
    mine: Container[PeerId] = frozenset()
    """Authors whose jobs are ``mine``; asked for each job, since an author may come later."""
    compiles: bool = False
    """Whether stages train through ``torch.compile``."""


def capabilities(gift: Gift) -> Capabilities:
    """What the hello of a peer with this gift says.

    One that compiles is like no other machine: where its code rounds is not among what can be named.
    """
    return Capabilities(
        memory=gift.memory,
        device=str(gift.device) if gift.memory else "",
        torch=str(torch.__version__),
        operators=operators_digest(),
        like="" if gift.compiles else like_machines(gift.device),
    )


class TrainingNode(Node):
    """A node that can train. ``author`` publishes jobs; a gift makes it hold stages."""

    author: Author

    def __init__(
        self,
        config: NodeConfig,
        *,
        gift: Gift,
        identity: Identity,
        clock: Clock,
        networks: Networks | None = None,
    ) -> None:
        self.gift = gift
        self.device = DeviceThread(gift.device, compiles=gift.compiles)
        self._holder: Holder | None = None
        super().__init__(config, identity=identity, clock=clock, networks=networks, extra=self._make)

    def _make(self, services: Services) -> tuple[Service, ...]:
        self.author = Author(services)
        if not self.gift.memory:
            return (self.author,)
        config = HolderConfig(memory=self.gift.memory, accepts=self.gift.accepts, mine=self.gift.mine)
        acquaintance = Acquaintance(services.context, services.jobs)  # reports come before offers
        self._holder = Holder(
            config,
            context=services.context,
            jobs=services.jobs,
            blocks=services.blocks,
            device=self.device,
        )
        hand_overs = HandOvers(self._holder, context=services.context, jobs=services.jobs)
        return (self.author, acquaintance, hand_overs, self._holder)

    def held(self) -> tuple[HeldStage, ...]:
        """The stages that this peer holds."""
        return self._holder.stages() if self._holder is not None else ()

    @property
    def idle_since(self) -> float:
        """Wall time since when it has held no stage."""
        return max(self.since, self._holder.pausing.idle_since if self._holder is not None else 0.0)

    @property
    def paused_since(self) -> float | None:
        """Wall time since when its user has it give itself to no job; None while it works."""
        return self._holder.pausing.since if self._holder is not None else None

    def set_paused(self, *, paused: bool) -> None:
        """Give itself to no job from now on, or again; a node that gives nothing anyhow refuses."""
        if self._holder is None:
            super().set_paused(paused=paused)
        elif paused:
            self._holder.pausing.begin(f"{PAUSED}, and gives itself to no job until it is resumed")
        else:
            self._holder.pausing.end()

    async def hand_over(self, seconds: float) -> None:
        """Its user has ended it: pause, and let others take over its stages within ``seconds``.

        Not those of jobs that it coordinates: those stop without it. Returns at once where there are no
        others, or nobody who could have them.
        """

        def handed_over() -> bool:
            jobs = [self.jobs.get(stage.job) for stage in self.held()]
            return not any(job is not None and job.coordinator != self.identity.peer for job in jobs)

        others = any(link.hello.capabilities.memory for link in self.links.values())
        if self._holder is None or handed_over() or not others:
            return
        stages = format_count(len(self.held()), "stage")
        words = f"{stages} may be taken over within {seconds:.0f} s; Ctrl+C again does not wait"
        self._holder.pausing.begin(f"its user has ended this peer: {words}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._holder.pausing.until(handed_over)

    async def __aenter__(self) -> Self:
        try:
            if self._holder is not None:
                self._holder.flops = await self.device.run(measure_flops, self.gift.device)
                self._holder.lacks = await self.device.run(lacking, ALLOWED, self.gift.device)
            return await super().__aenter__()
        except BaseException:
            await self.device.aclose()
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            await self.device.aclose()
