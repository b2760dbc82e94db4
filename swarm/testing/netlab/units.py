"""The amounts that people write in a lab's description: rates, durations, sizes, shares."""

import re
from typing import Final

from swarm.errors import MisuseError

_NUMBER: Final = re.compile(r"([+-]?\d{1,15}(?:\.\d{1,9})?)\s*([A-Za-z/%]*)", re.ASCII)

_RATES: Final = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
_DURATIONS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZES: Final = {
    "b": 1.0,
    "kb": 1e3,
    "mb": 1e6,
    "gb": 1e9,
    "tb": 1e12,
    "kib": 2.0**10,
    "mib": 2.0**20,
    "gib": 2.0**30,
    "tib": 2.0**40,
}
_SHARES: Final = {"%": 0.01, "": 1.0}


def parse_rate(text: str) -> float:
    """Bits a second: ``8Mbit``, ``1.5 Gbit/s``. Raises MisuseError, as all of these do."""
    return _parse(text, _RATES, "a rate: write 8Mbit, 1Gbit or a number of bits a second", end="/s")


def parse_duration(text: str) -> float:
    """Seconds: ``40ms``, ``1.5s``, ``-2h``."""
    return _parse(text, _DURATIONS, "a duration: write 40ms, 1.5s or a number of seconds")


def parse_size(text: str) -> float:
    """Bytes: ``512MiB`` (1024), ``4GB`` (1000)."""
    return _parse(text, _SIZES, "a size: write 512MiB, 4GB or a number of bytes")


def parse_share(text: str) -> float:
    """A part of the whole: ``1%`` or ``0.01``."""
    return _parse(text, _SHARES, "a share: write 1% or 0.01")


def format_rate(rate: float) -> str:
    """``8 Mbit/s``: a rate in bits a second, in the largest unit that leaves at least one."""
    for unit in ("tbit", "gbit", "mbit", "kbit"):
        if rate >= _RATES[unit]:
            return f"{rate / _RATES[unit]:.4g} {unit[0].upper() if unit != 'kbit' else 'k'}bit/s"
    return f"{rate:.4g} bit/s"


def _parse(text: str, units: dict[str, float], wanted: str, *, end: str = "") -> float:
    match = _NUMBER.fullmatch(text.strip())
    factor = units.get(match[2].lower().removesuffix(end)) if match else None
    if match is None or factor is None:
        raise MisuseError(f"{text!r} is not {wanted}")
    return float(match[1]) * factor
