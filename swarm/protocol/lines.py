"""Recovery lines: part of the coordination machine (decisions D10 and 0025).

A line is one step boundary of the whole job: what every stage was there is kept by its holder and by the
coordinator. The holders are told in time at which boundary to copy their state; once all copies of one
boundary are here, that is the line, and a job that loses a holder goes on from it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from swarm.errors import RemoteProtocolError
from swarm.ids import Step
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.manifest import AVERAGES
from swarm.wire.records.state import StateTensor

SNAPSHOT_SECONDS: Final = 60.0
"""From one line to the next, at least."""

REST: Final = 20.0
"""Times as long as its making took from one line to the next, so that it takes a twentieth of the links."""

LEAD_SECONDS: Final = 2.0
"""How long a holder has to hear of a boundary before it is there; doubled where one heard of it too late."""

COPY_SECONDS: Final = 30.0
"""How long after the job has passed a boundary its copies may take; then another one is tried."""

MOST_DOUBLINGS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The job's state after ``step`` steps; no tensors before the first, when it is the manifest's."""

    step: Step
    tensors: tuple[StateTensor, ...] = ()


BEGINNING: Final = Line(step=Step(0))


class Lines:
    """The lines of one job. ``line`` is the last one that was kept."""

    def __init__(self) -> None:
        self.line = BEGINNING
        self._due = math.inf
        self._ordered: Step | None = None
        """The boundary whose copies are awaited, or being kept."""
        self._passed = math.inf
        """When the job was at that boundary."""
        self._began = 0.0
        self._late = 0
        self._keeping = False
        self._copies: dict[int, tuple[StateTensor, ...]] = {}
        self._expected: tuple[tuple[TensorBlob, ...], ...] = ()
        self._speed = (0.0, 0)
        """When the plan began, and how many of its steps have been applied since."""

    def begin(self, expected: tuple[tuple[TensorBlob, ...], ...], now: float) -> None:
        """A plan begins whose stages own the tensors ``expected``, as they were at first."""
        self._expected = expected
        self._ordered, self._keeping = None, False
        self._copies.clear()
        self._due, self._speed = now + SNAPSHOT_SECONDS, (now, 0)

    def applied(self, step: int, last: int, now: float) -> Step | None:
        """Step ``step`` of ``last`` was applied; the boundary that holders are to be told of now, if any."""
        began, count = self._speed
        self._speed = (began, count + 1)
        if not self._is_time(step, now):
            return None
        lead = LEAD_SECONDS * 2.0**self._late * (count + 1) / max(now - began, 1e-3)
        boundary = step + 2 + math.ceil(lead)
        if boundary >= last:
            return None
        self._copies.clear()
        self._ordered, self._passed, self._began = Step(boundary), math.inf, now
        return self._ordered

    def _is_time(self, step: int, now: float) -> bool:
        """Whether to tell of another boundary: there is none, or one that somebody heard of too late."""
        if self._ordered is None or self._keeping:
            return self._ordered is None and now >= self._due
        if step >= self._ordered:
            self._passed = min(self._passed, now)
        if now < self._passed + COPY_SECONDS:
            return False
        self._ordered = None
        self._late = min(self._late + 1, MOST_DOUBLINGS)
        return True

    def take(self, stage: int, step: int, tensors: tuple[StateTensor, ...]) -> Line | None:
        """A holder's copy of its stage at a boundary; the line to keep, where it was the last that lacked.

        Raises RemoteProtocolError for one that is not of the stage's tensors.
        """
        if step != self._ordered or self._keeping or stage in self._copies:
            return None
        check_copy(tensors, self._expected[stage])
        self._copies[stage] = tensors
        if len(self._copies) < len(self._expected):
            return None
        self._keeping = True
        every = tuple(tensor for place in sorted(self._copies) for tensor in self._copies[place])
        return Line(step=Step(step), tensors=every)

    def kept(self, line: Line, now: float) -> None:
        """``line`` is kept, and counts from now on; one that another plan has overtaken does not."""
        if line.step <= self.line.step:
            return
        self.line = line
        if line.step == self._ordered:
            self._due = now + max(SNAPSHOT_SECONDS, REST * (now - self._began))
            self._ordered, self._keeping, self._late = None, False, 0

    def lost(self, now: float) -> None:
        """The line that was being kept could not be: its holder has left, or there is no room."""
        self._ordered, self._keeping = None, False
        self._due = now + SNAPSHOT_SECONDS


def check_copy(tensors: Sequence[StateTensor], owned: Sequence[TensorBlob]) -> None:
    """Raise RemoteProtocolError unless ``tensors`` are what a stage is that owns ``owned``."""
    kinds = {tensor.name: (tensor.dtype, tensor.shape, tensor.blob.size) for tensor in owned}
    found = {(one.part, one.tensor.name) for one in tensors}
    if len(found) != len(tensors):
        raise RemoteProtocolError("a snapshot has a tensor twice")
    plain = {n for n in kinds if not (n.startswith(AVERAGES) and n.removeprefix(AVERAGES) in kinds)}
    if {name for part, name in found if part == "value"} != plain:
        raise RemoteProtocolError("a snapshot has not the stage's tensors")
    for one in tensors:
        tensor = one.tensor
        kind = ("float32", (), 4) if one.part == "step" else kinds.get(tensor.name)
        if tensor.name not in plain or (tensor.dtype, tensor.shape, tensor.blob.size) != kind:
            raise RemoteProtocolError(f"a snapshot has {one.part} of {tensor.name[:200]}, which is not so")
