"""What a machine that draws lots is given: a ``random.Random``, or what a test has in its place."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Lots(Protocol):
    """The part of ``random.Random`` that is used."""

    def uniform(self, a: float, b: float) -> float:
        """A number between ``a`` and ``b``."""
        ...

    def choice(self, seq: Sequence[Item]) -> Item:
        """One of them."""
        ...

    def sample(self, population: Sequence[Item], k: int) -> list[Item]:
        """``k`` of them, all different."""
        ...
