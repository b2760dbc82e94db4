"""How far a job is by its records: part of the coordination machine."""

import math
from collections.abc import Iterable
from typing import Final

from swarm.errors import RemoteProtocolError
from swarm.protocol.terms import JobTerms
from swarm.wire.messages.jobs import JobProgress

MOST_DEPARTURES: Final = 5
MOST_FAULTS: Final = 1
"""Times that a job may go back one after the other without a step that is new, before it fails: after
departures, and after what a holder says went wrong, which goes wrong elsewhere too if the job is at fault."""


class Progress:
    """The records of one job. A plan that begins at a line runs passes again that are settled already."""

    def __init__(self, terms: JobTerms) -> None:
        self._terms = terms
        self._passes = terms.passes(0)
        self._done = 0
        """Passes of the present plan that are settled."""
        self._told = 0
        """Passes of the job whose records were new."""
        self._setbacks = 0
        self._last: JobProgress | None = None
        self.held_out = math.nan

    @property
    def steps(self) -> int:
        """Steps that have been applied, and may be applied again."""
        return self._last.step + 1 if self._last is not None else 0

    @property
    def loss(self) -> float:
        """Of the last of them; NaN before the first."""
        return self._last.loss if self._last is not None else math.nan

    @property
    def is_over(self) -> bool:
        """Whether the last pass is settled."""
        return self._done >= self._passes.count

    def restore(self, records: Iterable[JobProgress]) -> None:
        """Those that were taken in an earlier run of the coordinator; raises as :meth:`take` does."""
        for record in records:
            self.take(record)

    def begin(self, first_step: int) -> None:
        """A plan begins."""
        self._passes, self._done = self._terms.passes(first_step), 0

    def set_back(self, most: int) -> bool:
        """The job goes back; whether it may, as one that may do so ``most`` times without a new step."""
        self._setbacks += 1
        return self._setbacks <= most

    def take(self, record: JobProgress) -> bool:
        """A record; whether it says something new. Raises RemoteProtocolError for one that is not due."""
        if not self._is_due(record):
            raise RemoteProtocolError(f"a record says {record.outcome} of step {record.step}: not due")
        if record.outcome == "failed":
            return True
        self._done += 1
        done = self._terms.passes(0).count - self._passes.count + self._done
        if done <= self._told:
            return False
        self._told, self._setbacks = done, 0
        if record.outcome == "applied":
            self._last = record
        elif record.step == self._terms.steps:
            self.held_out = record.loss
        return True

    def _is_due(self, record: JobProgress) -> bool:
        """Whether it is of the pass that is next, as any other would be a forgery or a bug."""
        due = self._passes.at(self._done)
        if record.outcome == "failed":
            return record.step == due.step
        good = "applied" if due.phase == "train" else "evaluated"
        sound = math.isfinite(record.loss) and math.isfinite(record.norm)
        return sound and (record.outcome, record.step) == (good, due.step)
