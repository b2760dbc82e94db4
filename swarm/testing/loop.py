"""An event loop on a manual clock: timers fire in order, at once, and nobody waits.

Whenever the loop would sleep until its next timer, the clock is moved there instead. A run that only waits
for timers and for its own callbacks is thereby deterministic, and hours pass in milliseconds.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, TypeVarTuple

from swarm.testing.clock import ManualClock

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class _SkippingSelector(selectors.DefaultSelector):
    """Moves the clock by the time that the loop wanted to wait, unless a socket has something to say."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready now; waits for real only where no timer is set."""
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready and timeout > 0:
            self._clock.advance(timeout)
        return ready


class ManualLoop(asyncio.SelectorEventLoop):
    """An event loop whose ``time()`` is ``clock.elapsed()``; executor calls run in place."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(_SkippingSelector(clock))
        self._manual_clock = clock

    def time(self) -> float:
        """Seconds on the manual clock."""
        return self._manual_clock.elapsed()

    def run_in_executor(
        self,
        executor: Any,
        func: Callable[[*Arguments], Result],
        *args: *Arguments,
    ) -> asyncio.Future[Result]:
        """Call ``func`` now, and let it raise now: in a thread it would race with the manual clock."""
        future: asyncio.Future[Result] = self.create_future()
        future.set_result(func(*args))
        return future


def run_on_manual_clock(main: Callable[[ManualClock], Coroutine[Any, Any, Result]]) -> Result:
    """Run ``main(clock)`` to its end on a loop of its own that skips all waiting."""
    clock = ManualClock()
    with asyncio.Runner(loop_factory=lambda: ManualLoop(clock)) as runner:
        return runner.run(main(clock))
