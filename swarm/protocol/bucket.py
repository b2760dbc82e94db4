"""A leaky bucket: how much may happen at a stretch (Turner, IEEE Communications Magazine 24 (10), 1986)."""


class Bucket:
    """Holds ``most`` at a stretch, and loses ``a_second`` each second. Times are seconds of one clock."""

    __slots__ = ("_a_second", "_level", "_most", "_since")

    def __init__(self, *, most: float, a_second: float, now: float) -> None:
        self._most = most
        self._a_second = a_second
        self._level = 0.0
        self._since = now

    def add(self, amount: float = 1.0, *, now: float) -> bool:
        """So much more, if there is room for it; returns whether that was too much."""
        self._leak(now)
        if self._level + amount > self._most:
            return True
        self._level += amount
        return False

    def wait(self, amount: float = 1.0, *, now: float) -> float:
        """Seconds until there is room for so much more."""
        self._leak(now)
        return max(self._level + amount - self._most, 0.0) / self._a_second

    def _leak(self, now: float) -> None:
        """A clock that was set back takes nothing out."""
        self._level = max(self._level - max(now - self._since, 0.0) * self._a_second, 0.0)
        self._since = now
