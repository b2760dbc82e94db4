"""A clock that a test moves."""


class ManualClock:
    """A :class:`swarm.clock.Clock` that stands still until :meth:`advance` or :meth:`set_wall` moves it."""

    def __init__(self, *, elapsed: float = 0.0, wall: float = 1_750_000_000.0) -> None:
        self._elapsed = elapsed
        self._wall = wall

    def elapsed(self) -> float:
        """Seconds since an arbitrary start."""
        return self._elapsed

    def wall(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        return self._wall

    def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass on both clocks."""
        if seconds < 0:
            raise ValueError("time does not run backwards; use set_wall to change the date")
        self._elapsed += seconds
        self._wall += seconds

    def set_wall(self, wall: float) -> None:
        """Change the date alone, as a person or a time server does."""
        self._wall = wall
