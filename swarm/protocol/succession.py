"""From one plan to the next while a job trains: part of the pipeline machine (decision 0028).

A proposed plan gives one stage to a newcomer. The record of a step says that it holds from the next step on,
and nobody begins that step without the record: so the step that a message is about says which of the two
plans it belongs to, and no clock does.
"""

from swarm.ids import Generation, Incarnation, Step
from swarm.wire.messages.pipeline import Fence

Incarnations = tuple[Incarnation, ...]


class Succession:
    """The incarnations of all stages, as one of them sees them: now, and under the plan that is proposed."""

    def __init__(self, incarnations: Incarnations, *, catches_up: Generation | None = None) -> None:
        self.proposed = catches_up
        """The number of the plan that is proposed, or came last; None where there was none."""
        self.begins: Step | None = None
        """Its first step, once that is known."""
        self._catches_up = catches_up is not None
        self._now = incarnations
        self._next = incarnations

    def propose(self, generation: Generation, incarnations: Incarnations) -> None:
        """Another plan is proposed; one before it that has not begun never does."""
        if self.begins is not None:
            self._now, self._catches_up = self._next, False
        self.proposed, self._next, self.begins = generation, incarnations, None

    def begin(self, step: Step) -> None:
        """The record before ``step`` says that the proposed plan holds from there on."""
        self.begins = step

    def has_begun(self, step: int) -> bool:
        """Whether ``step`` is made under the proposed plan."""
        return self.begins is not None and step >= self.begins

    def is_live(self, step: int) -> bool:
        """Whether what this stage makes in ``step`` is sent: a newcomer only catches up before its plan."""
        return not self._catches_up or self.has_begun(step)

    def incarnations(self, step: int) -> Incarnations:
        """Of all stages in ``step``."""
        return self._next if self.has_begun(step) else self._now

    def leaves(self, stage: int) -> bool:
        """Whether ``stage`` is in other hands under the proposed plan."""
        return self._next[stage] != self._now[stage]

    def takes(self, fence: Fence) -> bool:
        """Whether a message is of one of the two plans: who has the record sooner sends sooner."""
        found = fence.sender, fence.receiver
        old = not self.has_begun(fence.step) and found == self._ends(self._now, fence)
        return old or (self.proposed is not None and found == self._ends(self._next, fence))

    @staticmethod
    def _ends(incarnations: Incarnations, fence: Fence) -> tuple[Incarnation, Incarnation]:
        return incarnations[fence.source], incarnations[fence.target]
