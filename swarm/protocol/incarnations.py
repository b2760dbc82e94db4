"""The incarnations of stages, plan after plan: part of the coordination machine (decisions D9, 0025)."""

from collections.abc import Sequence

import msgspec

from swarm.ids import Generation
from swarm.wire.records.plan import StagePlan


class Incarnations:
    """What each stage of a job was last, and how often it has changed hands."""

    def __init__(self) -> None:
        self._history: dict[int, tuple[StagePlan, int]] = {}
        self._anew = False

    def renew(self) -> None:
        """The next plan runs steps again: what is on its way is of another run, also between old hands."""
        self._anew = True

    def move(self, index: int, stage: StagePlan) -> None:
        """A stage has changed hands while its job trains: ``stage`` has its next incarnation."""
        self._history[index] = (stage, stage.incarnation)

    def of(self, stages: Sequence[StagePlan], generation: Generation) -> tuple[StagePlan, ...]:
        """``stages`` of the plan ``generation`` with their incarnations.

        One more than before where a stage changed hands or shape; in a plan that runs steps again its own
        number, which none has had.
        """
        found = tuple(self._incarnate(index, stage, generation) for index, stage in enumerate(stages))
        self._anew = False
        return found

    def _incarnate(self, index: int, stage: StagePlan, generation: Generation) -> StagePlan:
        known, incarnation = self._history.get(index, (None, 0))
        kept = known is not None and _place(known) == _place(stage)
        incarnation = generation if self._anew else incarnation + (not kept)
        self._history[index] = (stage, incarnation)
        return msgspec.structs.replace(stage, incarnation=incarnation)


def _place(stage: StagePlan) -> tuple[str, int, int]:
    return stage.holder, stage.first, stage.last
