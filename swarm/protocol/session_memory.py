"""Memory for payloads that arrive."""

import mmap
from typing import Final

from swarm.wire.limits import MIB

MAPPED_BYTES: Final = 4 * MIB
"""From this size on memory comes from the system page by page, as bytes arrive in it: one who announces a
large payload and sends little makes us spend little. Below it, a fresh bytearray is cheaper."""


def allocate(size: int) -> memoryview:
    """Writable memory for ``size`` bytes, given back when the last view of it is gone."""
    if size < MAPPED_BYTES:
        return memoryview(bytearray(size))
    if not hasattr(mmap, "MAP_PRIVATE"):
        return memoryview(mmap.mmap(-1, size))  # Windows
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)  # 2 MiB a page fault instead of 4 KiB: ten times as fast (tried)
    return memoryview(memory)
