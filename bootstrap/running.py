"""Running a program's event loop, and ending it: the first interrupt drains, the second one stops at once.

Whatever hangs while it drains, the process is gone within five seconds of the first interrupt: a watchdog
outside the loop and the interpreter's lock ends it, and prints where it hung.
"""

import asyncio
import faulthandler
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import psutil

from bootstrap.commandline import INTERRUPTED, InterruptedRunError

DRAIN_SECONDS: Final = 4.5
"""From the first interrupt to the end by force; users are promised five seconds (DESIGN section 5)."""

PARENT_SECONDS: Final = 0.5
"""Between two looks at whether the process that started this one is still there."""

_SIGNALS: Final = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)
_SHOW_CURSOR: Final = "\x1b[?25h"
_INTERRUPT: Final = "interrupted from outside"
_Result = TypeVar("_Result")


def run(body: Callable[[], Coroutine[Any, Any, _Result]], *, parent: int | None = None) -> _Result:
    """Run ``body`` on uvloop where there is one; an interrupt cancels it and raises InterruptedRunError.

    The end of the process ``parent`` is an interrupt, too: it may be killed without a word.
    """
    interrupts = _Interrupts()

    async def main() -> _Result:
        task = asyncio.current_task()
        if task is None:  # pragma: no cover - a coroutine always runs in a task
            raise RuntimeError("no current task")
        with interrupts.cancelling(task):
            if parent is not None:
                _end_with(parent)
            return await body()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        try:
            return runner.run(main())
        except asyncio.CancelledError:
            if not interrupts.count:
                raise
            raise InterruptedRunError from None


def is_interrupt(error: asyncio.CancelledError) -> bool:
    """Whether this came from the program's user, and not from something in it that went wrong."""
    return error.args == (_INTERRUPT,)


class _Interrupts:
    """Counts signals and acts on the first and the second."""

    def __init__(self) -> None:
        self.count = 0

    @contextmanager
    def cancelling(self, task: "asyncio.Task[Any]") -> Iterator[None]:
        """Take the process's signals for ``task`` while the context lasts."""
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in _SIGNALS}
        before = {number: handler for number, handler in before.items() if not _is_nohup(number, handler)}
        for number in before:
            try:
                loop.add_signal_handler(number, self._arrived, task)
            except NotImplementedError:  # Windows: the loop wakes up for a handler of the interpreter
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._arrived, task))
        try:
            yield
        finally:
            for number, handler in before.items():
                if sys.platform != "win32":
                    loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _arrived(self, task: "asyncio.Task[Any]") -> None:
        self.count += 1
        if self.count > 1:
            if sys.stdout.isatty():
                sys.stdout.write(_SHOW_CURSOR)
                sys.stdout.flush()
            os._exit(INTERRUPTED)
        self._arm_watchdog()
        task.cancel(_INTERRUPT)

    def _arm_watchdog(self) -> None:
        """Stays armed until the process is gone: threads are joined after the loop has ended, too."""
        faulthandler.dump_traceback_later(DRAIN_SECONDS, exit=True, file=sys.__stderr__ or sys.stderr)


def _is_nohup(number: int, handler: object) -> bool:
    """Whether the program was started so as to outlive its terminal."""
    return number == getattr(signal, "SIGHUP", None) and handler == signal.SIG_IGN


def _end_with(parent: int) -> None:
    """Look now and again whether the process ``parent`` is there, and interrupt this one when it is not."""
    loop = asyncio.get_running_loop()
    try:
        process = psutil.Process(parent)
    except psutil.NoSuchProcess:
        loop.call_soon(signal.raise_signal, signal.SIGTERM)
        return

    def look() -> None:
        if _is_there(process):
            loop.call_later(PARENT_SECONDS, look)
        else:
            signal.raise_signal(signal.SIGTERM)

    look()


def _is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop  # noqa: PLC0415 - not on Windows
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
