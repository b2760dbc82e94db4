"""The passes of a plan, in order: its training steps, with the evaluation passes in between and at the end.

The calendar that every stage and the coordinator share, so that what is due next is never a question of what
somebody sent. An evaluation pass has the number of steps done before it. One is in the middle wherever that
is a multiple of ``validate_every``, and one at the end where the job has held-out samples::

    train 0, train 1, evaluate 2, train 2, train 3, evaluate 4, train 4, evaluate 5    (every 2 of 5 steps)
"""

from bisect import bisect_right
from dataclasses import dataclass

from swarm.ids import Step
from swarm.wire.messages.pipeline import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class PassName:
    """Which pass it is: that of training step ``step``, or the evaluation after so many steps."""

    phase: Phase
    step: Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """All passes from ``first_step`` on, by their position from 0."""

    first_step: int
    steps: int
    """Of the job."""
    evaluates: bool
    """Whether there is an evaluation pass after the last step."""
    validate_every: int
    """Steps between evaluation passes before that; 0 for none."""

    @property
    def count(self) -> int:
        """How many there are."""
        return self._begin(self.steps) + self.evaluates

    def at(self, position: int) -> PassName:
        """The pass at ``position``, which is below ``count``."""
        steps = range(self.first_step, self.steps + 1)
        step = steps[bisect_right(steps, position, key=self._begin) - 1]
        evaluating = step == self.steps or (self._validates(step) and position == self._begin(step))
        return PassName(phase="evaluate" if evaluating else "train", step=Step(step))

    def position(self, name: PassName) -> int | None:
        """Where a pass is; None where the plan has no such pass."""
        step = name.step
        if not self.first_step <= step <= self.steps:
            return None
        if name.phase == "train":
            return self._begin(step) + self._validates(step) if step < self.steps else None
        due = self.evaluates if step == self.steps else self._validates(step)
        return self._begin(step) if due else None

    def _begin(self, step: int) -> int:
        """The position of the first pass that has ``step``."""
        before = step - self.first_step
        if not self.validate_every:
            return before
        return before + max((step - 1) // self.validate_every - self.first_step // self.validate_every, 0)

    def _validates(self, step: int) -> bool:
        """Whether an evaluation pass comes between the steps before ``step`` and it."""
        every = self.validate_every
        return every > 0 and self.first_step < step < self.steps and step % every == 0
