"""Out of memory on the device: what a stage does is done again, with all let go that can be made anew.

What is done again leaves the bits that it leaves when it succeeds at once: seeds are those of the operators,
and a forward that runs again starts from what the first one started from.
"""

import gc
from collections.abc import Callable
from typing import Final, TypeVar

import torch

from swarm.errors import DeviceMemoryError
from swarm.schedule.units import format_bytes
from swarm.train.device import free_caches, memory_of

REDOS: Final = 2
"""Times that work of one stage is done again, over the whole job; then the stage is given up."""

T = TypeVar("T")


class Redoing:
    """Does the work of one stage, and does it again where the device had no memory for it.

    ``release`` lets go of what the stage holds and can make anew.
    """

    def __init__(self, device: torch.device, release: Callable[[], None]) -> None:
        self._device = device
        self._release = release
        self.on_redo: Callable[[str], object] | None = None
        """Told, on the device thread, of each error after which work is done again."""
        self._redone = 0

    def do(self, work: Callable[[], T]) -> T:
        """Run ``work``, which either succeeds or leaves nothing that running it again would mind.

        Raises DeviceMemoryError, which says what can be done, where it still fails after :data:`REDOS` times.
        """
        while True:
            try:
                return work()
            except DeviceMemoryError as error:
                if self._redone == REDOS:
                    raise DeviceMemoryError(self._sentence(error)) from error
                sentence = str(error)  # its traceback holds tensors, and is gone after this block
            self._redone += 1
            self._release()
            gc.collect()
            free_caches(self._device)
            if self.on_redo is not None:
                self.on_redo(sentence)

    def _sentence(self, error: DeviceMemoryError) -> str:
        memory = memory_of(self._device)
        return (
            f"{error}; it was done again {REDOS} times with all let go that could be, and "
            f"{format_bytes(memory.available)} of {format_bytes(memory.total)} are free on {self._device}: "
            "give this peer less with --memory, or the job a smaller micro_batch_size"
        )
