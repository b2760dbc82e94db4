"""Tracing prints: torch warns and dumps graphs, authors print tensors that are fake. It is all kept in here.

Only what this thread prints, and only torch's own loggers: the rest of the program goes on talking.
"""

import contextlib
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any, TextIO, cast


class _OthersOnly:
    """A stream that drops what the thread that made it writes, and is ``stream`` to all others."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._silent = threading.get_ident()

    def write(self, text: str) -> int:
        """Pass ``text`` on, unless it comes from the silent thread."""
        return len(text) if threading.get_ident() == self._silent else self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep in what this thread and torch's loggers have to say while the block runs."""
    loggers = [
        logger
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] == "torch" and not logger.disabled
    ]
    for logger in loggers:
        logger.disabled = True
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(cast("TextIO", _OthersOnly(sys.stdout))),
            contextlib.redirect_stderr(cast("TextIO", _OthersOnly(sys.stderr))),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger in loggers:
            logger.disabled = False
