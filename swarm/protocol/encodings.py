"""Which codecs each step of a plan is made with: those of the plan, until step records say otherwise (D8)."""

from collections.abc import Sequence
from typing import Final

from swarm.errors import LocalError
from swarm.wire.codecs import CodecSpec

AHEAD: Final = 2
"""Steps from a record to the first one that is made with its codecs (``TunedRecord``)."""

_KEPT: Final = AHEAD + 2
"""Changes that a stage may still be asked about: those of the steps ahead, and the one before them."""


class Encodings:
    """The codecs of one plan by step."""

    def __init__(self, first: Sequence[CodecSpec]) -> None:
        self._changes: tuple[tuple[int, tuple[CodecSpec, ...]], ...] = ((0, tuple(first)),)
        """From which step on which, by rising step; replaced as a whole, since other threads read it."""

    def of(self, step: int) -> tuple[CodecSpec, ...]:
        """The codecs of ``step``, by the stage that sends forward; of an evaluation, of the step after it."""
        return next(
            (codecs for first, codecs in reversed(self._changes) if first <= step), self._changes[0][1]
        )

    @property
    def latest(self) -> tuple[CodecSpec, ...]:
        """Those that were agreed on last."""
        return self._changes[-1][1]

    def agree(self, step: int, later: Sequence[CodecSpec]) -> None:
        """The record of ``step`` said what comes later. Raises LocalError where records come out of order."""
        first, known = self._changes[-1]
        if step + AHEAD < first:
            raise LocalError(f"the record of step {step} came after a later one")
        if tuple(later) != known:
            self._changes = (*self._changes, (step + AHEAD, tuple(later)))[-_KEPT:]
