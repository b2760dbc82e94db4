"""Events with fields. ``log.info("link up", peer=..., rate=...)`` becomes one line, or one JSON object.

The fields are data for people and for log collectors; no part of the program reads them back. Secrets, keys
and invites are never given to a logger.
"""

import json
import logging
import sys
from typing import Any, Final

_FIELDS: Final = "swarm_fields"


class Log:
    """A named logger whose records carry fields; ``bind`` adds fields to all later records."""

    __slots__ = ("_bound", "_logger")

    def __init__(self, logger: logging.Logger, bound: dict[str, Any]) -> None:
        self._logger = logger
        self._bound = bound

    def bind(self, **fields: Any) -> "Log":
        """A logger that adds ``fields`` to every record."""
        return Log(self._logger, self._bound | fields)

    def debug(self, event: str, **fields: Any) -> None:
        """Something only a developer of this program looks for."""
        self._emit(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        """Something the user of this peer wants to know."""
        self._emit(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        """Something that goes on, but not as it should."""
        self._emit(logging.WARNING, event, fields)

    def error(self, event: str, **fields: Any) -> None:
        """Something that ended, and should not have."""
        self._emit(logging.ERROR, event, fields)

    def _emit(self, level: int, event: str, fields: dict[str, Any]) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, "%s", event, extra={_FIELDS: self._bound | fields})


class _LineFormatter(logging.Formatter):
    """``12:00:01 info  link up peer=abc rate=1.2e6``."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, _FIELDS, {})
        moment = self.formatTime(record, "%H:%M:%S")
        tail = "".join(f" {key}={_shown(value)}" for key, value in fields.items())
        line = _visible(f"{moment} {record.levelname.lower():<7} {record.getMessage()}{tail}")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _JsonFormatter(logging.Formatter):
    """One JSON object a line, with the fields beside ``time``, ``level``, ``logger`` and ``event``."""

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = getattr(record, _FIELDS, {})
        head = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if record.exc_info:
            head["exception"] = self.formatException(record.exc_info)
        return json.dumps(
            head | {key: value for key, value in fields.items() if key not in head}, default=str
        )


def _visible(text: str) -> str:
    """``text`` in one line: what others say may be in it, and must not move the reader's cursor."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _shown(value: Any) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in ' "=\n' for c in text) else text


def get_log(name: str) -> Log:
    """The logger of a module: ``get_log(__name__)``."""
    return Log(logging.getLogger(name), {})


def configure(level: str = "info", *, as_json: bool = False) -> None:
    """Send the program's log to standard error; called once, by the programs."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter() if as_json else _LineFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for noisy in ("asyncio", "kademlia", "rpcudp", "aiohttp.access"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
