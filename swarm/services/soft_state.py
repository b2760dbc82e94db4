"""Writing what a node would rather keep, and can do without until it stops: members, uses, jobs.

A full disk, or a home that somebody removed, must not end a node at work, so such a write that fails is told
and no more. The identity itself is made before a node runs, and is not soft.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from swarm.errors import UserError
from swarm.services.story import Story


class SoftState:
    """The files of one node in ``folder``. Tells once that the folder is gone, and each other failure."""

    def __init__(self, folder: Path, story: Story) -> None:
        self._folder = folder
        self._story = story
        self._gone = False

    async def keep(self, what: str, write: Callable[[], object]) -> bool:
        """Run ``write`` in a thread; whether it worked. Where it did not, ``what`` is told as not kept."""
        try:
            await asyncio.to_thread(write)
        except (UserError, OSError) as error:
            self._tell(what, error)
            return False
        return True

    def _tell(self, what: str, error: Exception) -> None:
        if self._folder.exists():
            self._story.tell("trouble", f"{what} not kept: {error}")
        elif not self._gone:
            self._gone = True
            self._story.tell(
                "trouble", f"the home {self._folder} is gone: what this node learns is lost when it stops"
            )
