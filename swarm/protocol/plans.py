"""The plan in force, and the numbers of plans: part of the coordination machine."""

import msgspec

from swarm.errors import RemoteProtocolError
from swarm.ids import Generation, PeerId
from swarm.protocol.incarnations import Incarnations
from swarm.wire.records.plan import Plan


class Plans:
    """The plans of one job. ``generation`` is the highest number that was given away."""

    def __init__(self) -> None:
        self.generation = Generation(0)
        self.plan: Plan | None = None
        self._before: Plan | None = None
        """The one before, where a stage has changed hands since: its holders may still speak."""
        self._incarnations = Incarnations()

    def restore(self, generation: Generation) -> None:
        """An earlier run of the coordinator gave away the numbers up to ``generation``."""
        self.generation = generation
        if generation:
            self._incarnations.renew()

    def issue(self, plan: Plan) -> Plan:
        """``plan`` with its number and the incarnations of its stages; it is in force."""
        numbered = self.numbered(plan)
        stages = self._incarnations.of(numbered.stages, self.generation)
        self.plan, self._before = msgspec.structs.replace(numbered, stages=stages), None
        return self.plan

    def numbered(self, plan: Plan) -> Plan:
        """``plan`` with the next number."""
        self.generation = Generation(self.generation + 1)
        return msgspec.structs.replace(plan, generation=self.generation)

    def succeed(self, plan: Plan, stage: int) -> None:
        """``plan`` is in force; by it ``stage`` has changed hands."""
        self._before, self.plan = self.plan, plan
        self._incarnations.move(stage, plan.stages[stage])

    def drop(self, *, anew: bool = False) -> None:
        """No plan is in force; with ``anew`` the next one runs steps again."""
        self.plan = self._before = None
        if anew:
            self._incarnations.renew()

    def stages_of(self, peer: PeerId) -> list[int]:
        """Which stages ``peer`` holds."""
        stages = self.plan.stages if self.plan is not None else ()
        return [index for index, stage in enumerate(stages) if stage.holder == peer]

    def of(self, generation: int, stage: int, peer: PeerId) -> Plan | None:
        """The plan that a message of ``peer`` about ``stage`` is for, if that is in force, or was until now.

        Raises RemoteProtocolError where ``peer`` does not hold the stage by it.
        """
        for plan in (self.plan, self._before):
            if plan is not None and plan.generation == generation:
                if stage >= len(plan.stages) or plan.stages[stage].holder != peer:
                    raise RemoteProtocolError(f"it does not hold stage {stage}")
                return plan
        return None
