"""How long to wait for an answer: the retransmission timer of RFC 6298, within our bounds."""

from swarm.dht.limits import (
    FIRST_TIMEOUT_SECONDS,
    MAX_TIMEOUT_SECONDS,
    MIN_PATIENCE_SECONDS,
    MIN_TIMEOUT_SECONDS,
)


class RoundTrip:
    """Smoothed round-trip time and its variation, in seconds."""

    __slots__ = ("_smoothed", "_variation")

    def __init__(self) -> None:
        self._smoothed: float | None = None
        self._variation = 0.0

    @property
    def smoothed(self) -> float | None:
        """The estimate, or None before the first sample."""
        return self._smoothed

    def sample(self, seconds: float) -> None:
        """Count the answer to one datagram (RFC 6298, section 2): at most our longest wait."""
        seconds = min(seconds, MAX_TIMEOUT_SECONDS)
        if self._smoothed is None:
            self._smoothed = seconds
            self._variation = seconds / 2
            return
        self._variation += (abs(self._smoothed - seconds) - self._variation) / 4
        self._smoothed += (seconds - self._smoothed) / 8

    @property
    def patience(self) -> float:
        """Seconds after which an answer is late: the timeout of RFC 6298 without its floor."""
        if self._smoothed is None:
            return FIRST_TIMEOUT_SECONDS
        return min(max(self._smoothed + 4 * self._variation, MIN_PATIENCE_SECONDS), MAX_TIMEOUT_SECONDS)

    @property
    def timeout(self) -> float:
        """Seconds to wait before a request is sent again, or given up."""
        return max(self.patience, MIN_TIMEOUT_SECONDS)
