"""Memory for payloads that arrive."""

import contextlib
import ctypes
import mmap
import weakref
from collections import deque
from typing import Final

from swarm.wire.limits import MIB

MAPPED_BYTES: Final = 4 * MIB
"""From this size on memory comes from the system page by page, as bytes arrive in it: one who announces a
large payload and sends little makes us spend little. Below it, a fresh bytearray is cheaper."""
SPARE_SECONDS: Final = 10.0
"""Mappings of which none was used again for so long are given back to the system."""

_Reference = weakref.ref[ctypes.Array[ctypes.c_char]]


class PayloadMemory:
    """Lends memory, and keeps up to ``spare`` bytes of it for payloads of the same size to come.

    For the system to clear fresh pages takes a seventh of all that receiving takes (tried). A mapping comes
    back when the last view of it is gone, on whatever thread that is.
    """

    def __init__(self, *, spare: int) -> None:
        self._limit = spare
        self._lent: dict[int, tuple[_Reference, mmap.mmap]] = {}
        """By the identity of the reference: it has no hash of its own."""
        self._spare: deque[mmap.mmap] = deque()
        self._trimmed = 0.0
        self._used = False
        """Whether a spare mapping was used since they were looked at."""

    @property
    def spare(self) -> int:
        """Bytes that are kept and lent to nobody."""
        return sum(map(len, tuple(self._spare)))

    def allocate(self, size: int) -> memoryview:
        """Writable memory for ``size`` bytes, with anything in it."""
        if size < MAPPED_BYTES:
            return memoryview(bytearray(size))
        mapping = self._find(size) or _map(size)
        lent = (ctypes.c_char * size).from_buffer(mapping)
        reference = weakref.ref(lent, self._take_back)
        self._lent[id(reference)] = reference, mapping
        return memoryview(lent).cast("B")

    def trim(self, now: float) -> None:
        """To be called now and then: give up what nobody has used for SPARE_SECONDS."""
        if now < self._trimmed + SPARE_SECONDS:
            return
        if not self._used:
            self.clear()
        self._trimmed, self._used = now, False

    def clear(self) -> None:
        """Keep nothing of what is spare now."""
        self._spare.clear()

    def _find(self, size: int) -> mmap.mmap | None:
        for mapping in tuple(self._spare):
            if len(mapping) == size:
                self._spare.remove(mapping)
                self._used = True
                return mapping
        return None

    def _take_back(self, reference: _Reference) -> None:
        _, mapping = self._lent.pop(id(reference))
        if len(mapping) > self._limit:
            return
        self._spare.append(mapping)
        with contextlib.suppress(IndexError):  # two threads that make room at the same time
            while self.spare > self._limit:
                self._spare.popleft()


def _map(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, size)  # Windows
    mapping = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)  # 2 MiB a page fault instead of 4 KiB: ten times as fast (tried)
    return mapping
