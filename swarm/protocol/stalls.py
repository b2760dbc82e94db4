"""How long a job may stay where it is: part of the coordination machine.

A peer that stops answering while its link lives must not hold up the others for ever. The bounds are far
above what any honest peer needs on the slowest link there is, since a job that is ended wrongly is lost.
"""

from typing import Final

from swarm.wire.messages.jobs import JobState

LOADING_SECONDS: Final = 120.0
SLOWEST_RATE: Final = 125_000.0
"""How long loading, and handing over, may take: so many seconds, and the job's bytes at 1 Mbit/s."""

FIRST_STEP_SECONDS: Final = 6 * 3600.0
SHORTEST_STALL_SECONDS: Final = 3600.0
STALLED_STEPS: Final = 20.0
"""How long a step may take: so long the first, and then so many times the slowest so far."""


class Stall:
    """When a job has been where it is for too long: ``deadline``, or None where it may stay."""

    def __init__(self, job_bytes: int) -> None:
        self.deadline: float | None = None
        self._bytes = job_bytes
        self._since = 0.0
        self._slowest = 0.0

    def enter(self, state: JobState, now: float) -> None:
        """The job is in ``state`` from now on."""
        self._since = now
        match state:
            case "loading" | "finishing":
                self.deadline = now + LOADING_SECONDS + self._bytes / SLOWEST_RATE
            case "training":
                self.deadline = now + FIRST_STEP_SECONDS
            case _:
                self.deadline = None

    def step(self, now: float) -> None:
        """A step is settled; the next one may take longer, but not for ever."""
        self._slowest = max(self._slowest, now - self._since)
        self._since = now
        self.deadline = now + max(SHORTEST_STALL_SECONDS, STALLED_STEPS * self._slowest)

    def lift(self) -> None:
        """Nobody else is waited for any more."""
        self.deadline = None

    def is_over(self, now: float) -> bool:
        """Whether it has been too long."""
        return self.deadline is not None and now >= self.deadline

    def seconds(self, now: float) -> float:
        """How long it has been."""
        return now - self._since
