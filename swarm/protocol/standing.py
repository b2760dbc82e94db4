"""The state that a job is in, why, and for how long it may be: part of the coordination machine."""

from typing import Final

from swarm.protocol.patience import Patience
from swarm.protocol.stalls import Stall
from swarm.protocol.terms import JobTerms
from swarm.wire.messages.jobs import JobState

ENDED: Final[frozenset[JobState]] = frozenset({"done", "failed", "cancelled"})


class Standing:
    """Where one job stands. ``since`` is the ``now`` at which it came there."""

    def __init__(self, terms: JobTerms) -> None:
        self.state: JobState = "waiting"
        self.sentence = ""
        self.since = 0.0
        self.patience = Patience(terms.patience)
        self.stall = Stall(terms.bytes)

    @property
    def until(self) -> float | None:
        """When waiting ends in failure."""
        return self.patience.until if self.state == "waiting" else None

    def enter(self, state: JobState, sentence: str, now: float, *, has_steps: bool) -> None:
        """It is in ``state`` now, because of ``sentence``."""
        if state != self.state:
            if self.state == "waiting":
                self.patience.waited += now - self.since
            self.state = state
            self.begin(now, has_steps=has_steps)
        self.sentence = sentence

    def begin(self, now: float, *, has_steps: bool) -> None:
        """The time in this state counts from now on."""
        self.since = now
        self.patience.begin(now, has_steps=has_steps)
        self.stall.enter(self.state, now)
