"""The loss curve of a job in bounded memory, for pages that show it."""

from typing import Final

from swarm.services.status.document import CurvePoint

MAX_POINTS: Final = 256
"""Points kept of one curve: as many as a small picture can show. Even, so that halving keeps the spacing."""


class LossCurve:
    """Losses of steps that rise, thinned evenly: when full, every other point goes and the stride doubles."""

    __slots__ = ("_points", "_stride")

    def __init__(self) -> None:
        self._points: list[CurvePoint] = []
        self._stride = 1

    def add(self, step: int, loss: float) -> None:
        """Note the loss of ``step``. A step at or before the last one noted begins again from there."""
        while self._points and self._points[-1].step >= step:
            self._points.pop()
        if step % self._stride:
            return
        self._points.append(CurvePoint(step=step, loss=loss))
        if len(self._points) > MAX_POINTS:
            self._stride *= 2
            self._points = [point for point in self._points if point.step % self._stride == 0]

    @property
    def points(self) -> tuple[CurvePoint, ...]:
        """The curve, oldest first; at most ``MAX_POINTS`` points."""
        return tuple(self._points)
