"""How times and foreign text are written on a terminal."""

import datetime
import unicodedata
from typing import Final

from swarm.ids import short

_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Unicode categories of characters that steer a terminal or hide text, rather than show something."""


def clean(text: str) -> str:
    """``text`` from another peer, harmless on a terminal: no control or direction characters, one line."""
    return "".join("\ufffd" if unicodedata.category(c) in _HIDDEN else c for c in text)


def shown_span(seconds: float | None) -> str:
    """``3 min 20 s``: a duration, in its two largest units."""
    if seconds is None:
        return "-"
    count = max(0, round(seconds))
    if count < 60:
        return f"{count} s"
    if count < 3600:
        return f"{count // 60} min {count % 60} s"
    if count < 2 * 86400:
        return f"{count // 3600} h {count % 3600 // 60} min"
    return f"{count // 86400} d {count % 86400 // 3600} h"


def shown_clock(wall: float) -> str:
    """A wall time of the last day or so, as this machine's clock on the wall would show it."""
    return _moment(wall).astimezone().strftime("%H:%M:%S")


def shown_date(wall: float) -> str:
    """A wall time in UTC, to the minute."""
    return _moment(wall).strftime("%Y-%m-%d %H:%M UTC")


def shown_number(value: float | None, places: int = 4) -> str:
    """A number, or a dash where there is none."""
    return "-" if value is None else f"{value:.{places}f}"


def shown_rate(bytes_per_second: float | None) -> str:
    """A rate in bits, as lines are sold."""
    if bytes_per_second is None:
        return "-"
    bits = bytes_per_second * 8
    for unit in ("bit/s", "kbit/s", "Mbit/s"):
        if bits < 1000:
            return f"{bits:.3g} {unit}"
        bits /= 1000
    return f"{bits:.3g} Gbit/s"


def shown_peer(peer: str) -> str:
    """A peer's id, short."""
    return short(peer) or "-"


def _moment(wall: float) -> datetime.datetime:
    # Another peer's clock may say anything, and a date has limits.
    return datetime.datetime.fromtimestamp(min(max(wall, 0.0), 2.0**37), datetime.UTC)
