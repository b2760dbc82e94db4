"""How long a job waits for peers: part of the coordination machine."""

from typing import Final

AWAY_SECONDS: Final = 7 * 86400.0
"""At least, once it has made a step: then there is more to lose, and machines are off at night."""


class Patience:
    """``seconds`` are for all waiting together, or whoever fails often would renew them; 0 waits for ever."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.waited = 0.0
        """Seconds so far, without the present wait."""
        self.until: float | None = None
        """When the present wait has been too long."""

    def begin(self, now: float, *, has_steps: bool) -> None:
        """A state begins that may be one of waiting."""
        if self.seconds > 0:
            self.seconds = max(self.seconds, AWAY_SECONDS if has_steps else 0.0)
            self.until = now + max(self.seconds - self.waited, 0.0)

    def is_over(self, now: float) -> bool:
        """Whether it has been too long."""
        return self.until is not None and now >= self.until
