"""How amounts are written for people. One way everywhere, so that messages and tables agree."""

from typing import Final

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(count: float) -> str:
    """``61.2 MiB``: bytes in the largest binary unit that leaves at least one, to one decimal from KiB on."""
    unit = 0
    while unit + 1 < len(_BINARY) and abs(count) >= 1023.95:
        count /= 1024
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_BINARY[unit]}"


def format_count(count: int, noun: str) -> str:
    """``1 stage``, ``2 stages``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def format_seconds(seconds: float) -> str:
    """``12 ms``: a duration in the largest of s, ms, us that leaves at least one, to three digits."""
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
