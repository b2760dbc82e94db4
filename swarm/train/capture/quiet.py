"""Tracing prints: torch warns and dumps graphs, authors print tensors that are fake. It is all kept in here.

Only what this thread prints, and only torch's own loggers: the rest of the program goes on talking. What is
meant for the author is handed on afterwards: a target of another size than the input, for example, trains,
but something else than was meant.
"""

import contextlib
import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TextIO, cast

from torch import nn

from swarm.log import get_log
from swarm.train.capture.places import is_model_code

_FUNCTIONS: Final = str(Path(nn.__file__).parent)
"""Where torch warns of what its callers do; the rest of it warns of itself while it traces."""

_BETWEEN: Final = (__file__, warnings.__file__)
"""Frames between the one that warned and the ear."""

_log = get_log(__name__)


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


class _Ear:
    """Hears the warnings of a block, in place of ``warnings.showwarning``, and keeps those for the author."""

    def __init__(self) -> None:
        self.heard: dict[str, str] = {}
        """The line of the author's code by what was said of it."""

    def __call__(self, message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        """Look where the warning comes from; what torch says of its own tracing is nobody's."""
        frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_stack(None)]
        callers = [(file, line) for file, line in frames if file not in _BETWEEN]
        own = [(file, line) for file, line in callers if is_model_code(file)]
        if category is UserWarning and own and (callers[0] == own[0] or callers[0][0].startswith(_FUNCTIONS)):
            file, line = own[0]
            self.heard.setdefault(" ".join(str(message).split()), f"{Path(file).name}:{line}")


@contextlib.contextmanager
def quiet(*, tell: bool = False) -> Iterator[None]:
    """Keep in what this thread and torch's loggers have to say while the block runs.

    ``tell``: what torch warns the author of is logged afterwards, each thing once.
    """
    ear = _Ear()
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
            warnings.simplefilter("always" if tell else "ignore")
            warnings.showwarning = ear
            yield
    finally:
        for logger in loggers:
            logger.disabled = False
    for words, place in ear.heard.items():
        _log.warning(f"torch warns: {words}", at=place)
