"""The tasks of a pool: a task group that can be opened again, and whose tasks can be ended without it."""

import asyncio
from collections.abc import Coroutine
from typing import Any


class OwnedTasks:
    """An ``asyncio.TaskGroup`` with a memory of its tasks. What one of them raises, ``aclose`` raises."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending = False

    @property
    def is_open(self) -> bool:
        """Whether tasks may be added."""
        return self._group is not None and not self._ending

    async def open(self) -> None:
        """Begin; the task that calls this owns the others, and is cancelled where one of them fails."""
        self._group = await asyncio.TaskGroup().__aenter__()
        self._ending = False

    def add(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` as a task; where none may be added, it never begins."""
        if self._group is None or self._ending:
            work.close()
            return
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._ending = True  # the group ends all tasks now, and takes no more

    def end(self) -> None:
        """Add no more."""
        self._ending = True

    def cancel(self) -> None:
        """End all that still run."""
        self._ending = True
        for task in list(self._tasks):
            task.cancel()

    async def aclose(self) -> None:
        """Wait until all have ended; raises an ExceptionGroup with what they raised."""
        group, self._group = self._group, None
        if group is not None:
            await group.__aexit__(None, None, None)
