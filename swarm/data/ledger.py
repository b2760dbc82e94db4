"""What a block store holds, in memory only: sizes, order of use, pins and room. Not thread-safe by itself."""

from collections.abc import Callable, Iterable

from swarm.errors import FailureError, LocalError
from swarm.ids import Digest
from swarm.schedule.units import format_bytes


class Ledger:
    """The accounts of a store that may hold ``limit`` bytes, as data about blocks and never the blocks.

    A block is *pinned* while at least one owner has named it; a block may be pinned before it is there.
    Room is reserved before a block is written, so that writers side by side stay within the limit together.
    """

    __slots__ = ("_owners", "_pins", "_reserved", "_sizes", "_total", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._sizes: dict[Digest, int] = {}
        self._pins: dict[Digest, int] = {}
        self._owners: dict[str, set[Digest]] = {}
        self._reserved = 0
        self._total = 0

    @property
    def size(self) -> int:
        """Bytes of all blocks that are there."""
        return self._total

    def __len__(self) -> int:
        return len(self._sizes)

    def __contains__(self, digest: object) -> bool:
        return digest in self._sizes

    def length(self, digest: Digest) -> int | None:
        """Bytes of one block, or None where it is not there."""
        return self._sizes.get(digest)

    def digests(self) -> tuple[Digest, ...]:
        """All blocks, the least recently used first."""
        return tuple(self._sizes)

    def touch(self, digest: Digest) -> None:
        """Note that a block was used now."""
        size = self._sizes.pop(digest, None)
        if size is not None:
            self._sizes[digest] = size

    def add(self, digest: Digest, size: int) -> None:
        """Note that a block is there, as the most recently used one."""
        self.remove(digest)
        self._sizes[digest] = size
        self._total += size

    def remove(self, digest: Digest) -> None:
        """Note that a block is not there; pins on it stay."""
        self._total -= self._sizes.pop(digest, 0)

    def pinned(self, digest: Digest) -> bool:
        """Whether some owner needs this block."""
        return digest in self._pins

    def pin(self, owner: str, digests: Iterable[Digest]) -> None:
        """Add to what ``owner`` needs."""
        owned = self._owners.setdefault(owner, set())
        for digest in digests:
            if digest not in owned:
                owned.add(digest)
                self._pins[digest] = self._pins.get(digest, 0) + 1

    def unpin(self, owner: str) -> None:
        """Forget all that ``owner`` needs."""
        for digest in self._owners.pop(owner, set()):
            self._pins[digest] -= 1
            if not self._pins[digest]:
                del self._pins[digest]

    def victims(self, size: int) -> list[Digest]:
        """The least recently used unpinned blocks that must go before ``size`` bytes fit; maybe none.

        Raises FailureError where all that may go is not enough.
        """
        excess = self._total + self._reserved + size - self.limit
        chosen = self.loose(excess)
        if sum(self._sizes[digest] for digest in chosen) < excess:
            raise FailureError(
                f"the block store is full: {format_bytes(size)} more do not fit beside the "
                f"{format_bytes(self._total + self._reserved - self._unpinned())} in use, "
                f"its limit is {format_bytes(self.limit)}: give it more with --disk"
            )
        return chosen

    def loose(self, size: int, counts: Callable[[Digest], bool] = lambda _: True) -> list[Digest]:
        """The least recently used unpinned blocks that have ``size`` bytes together, or all there are.

        Of those that ``counts`` says.
        """
        chosen: list[Digest] = []
        for digest, length in self._sizes.items():
            if size <= 0:
                break
            if digest not in self._pins and counts(digest):
                chosen.append(digest)
                size -= length
        return chosen

    def reserve(self, size: int) -> None:
        """Keep room for a block that is being written."""
        self._reserved += size

    def release(self, size: int) -> None:
        """Give back what :meth:`reserve` kept."""
        self._reserved -= size

    def check(self) -> None:
        """Raise LocalError where the accounts do not add up."""
        counts: dict[Digest, int] = {}
        for owned in self._owners.values():
            for digest in owned:
                counts[digest] = counts.get(digest, 0) + 1
        if counts != self._pins or self._total != sum(self._sizes.values()) or self._reserved < 0:
            raise LocalError("the accounts of the block store do not add up")

    def _unpinned(self) -> int:
        return sum(length for digest, length in self._sizes.items() if digest not in self._pins)
