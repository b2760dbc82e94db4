"""Codecs that follow what links carry: the recorder's part of the policy ``deadline`` (decision D8).

The recorder hears of every step how long each stage computed and what the links beside it carried, and its
records say with which codecs the step after next is made: the coordinator is not in the loop, and nobody
waits for a change (docs/decisions/0024-the-recorder-chooses-codecs.md).
"""

from collections.abc import Mapping, Sequence

from swarm.compress.fitting import coding_seconds
from swarm.ids import PeerId
from swarm.protocol.pipeline_events import StageRole
from swarm.schedule.quality import Rung, fitted, ladder
from swarm.schedule.tuning import Pair, Sample, Tuner, Tuning
from swarm.services.context import Context
from swarm.services.training.loading import LoadedStage
from swarm.train.device import DeviceThread
from swarm.wire.codecs import Codecs
from swarm.wire.messages.pipeline import NeighbourRate, RatedReport, StageReport
from swarm.wire.records.plan import Plan


class Retuning:
    """Decides at the recorder. ``fit`` comes first."""

    def __init__(self, loaded: LoadedStage) -> None:
        self._loaded = loaded
        self._holders: list[PeerId] = []
        self._rungs: tuple[Rung, ...] = ()
        self._tuner: Tuner | None = None

    async def fit(self, device: DeviceThread) -> None:
        """Measure what codecs take on this peer; the others are taken to be like it."""
        quality = self._loaded.role.quality
        if quality is None:
            return
        rungs = ladder()
        seconds = await device.run(coding_seconds, [rung.codec for rung in rungs[1:]], device.device)
        self._rungs = tuple(fitted(rungs, seconds))
        self.follow(self._loaded.plan)

    def follow(self, plan: Plan) -> None:
        """The stages are where ``plan`` says: what is known of the links of others is of no use."""
        quality = self._loaded.role.quality
        if quality is None:
            return
        self._holders = [PeerId(stage.holder) for stage in plan.stages]
        self._tuner = Tuner(
            self._loaded.graphs["train"],
            self._loaded.stages,
            self._holders,
            quality=quality,
            rungs=self._rungs,
        )

    def heard(self, codecs: Codecs, reports: Mapping[int, StageReport]) -> Tuning | None:
        """All stages have reported a step; ``codecs`` are the latest agreed on."""
        if self._tuner is None:
            return None
        micro_batches = self._loaded.role.micro_batches
        compute = [reports[stage].compute_seconds / micro_batches for stage in sorted(reports)]
        return self._tuner.heard(codecs, Sample(compute=compute, rates=self._rates(reports)))

    def _rates(self, reports: Mapping[int, StageReport]) -> dict[Pair, float]:
        """What both ends of a link measured, the smaller one; what one measured where the other did not."""
        found: dict[Pair, float] = {}
        for stage, report in reports.items():
            for rate in report.rates if isinstance(report, RatedReport) else ():
                if rate.stage < len(self._holders):
                    here, there = self._holders[stage], self._holders[rate.stage]
                    for pair, measured in (((here, there), rate.up), ((there, here), rate.down)):
                        if measured > 0:
                            found[pair] = min(measured, found.get(pair, measured))
        return found


def neighbour_rates(context: Context, role: StageRole, holders: Sequence[str]) -> tuple[NeighbourRate, ...]:
    """What this end of the links to the holders of the stages next to one has measured."""
    edges = (*role.train.incoming, *role.train.outgoing)
    found = []
    for stage in sorted({edge.stage for edge in edges}):
        link = context.links.get(PeerId(holders[stage]))
        if link is not None:
            numbers = link.statistics()
            found.append(NeighbourRate(stage, numbers.rate_up, numbers.rate_down))
    return tuple(found)
