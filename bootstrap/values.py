"""The values that people write on the command line: addresses, sizes, durations. All raise MisuseError."""

import ipaddress
import re
from typing import Final

from swarm.errors import MisuseError
from swarm.net.address import Address

DEFAULT_PORT: Final = 7423
"""TCP and UDP port of a node (DESIGN section 5)."""

MAX_BYTES: Final = 2**60
MIN_RATE: Final = 8_000
"""Bytes a second below which heartbeats would be late behind one bulk frame."""
MAX_SECONDS: Final = 100 * 365 * 86400

_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)\s*(?:([kmgtp])(i?))?b?", re.IGNORECASE | re.ASCII)
_EXPONENTS: Final = {"k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_RATE: Final = re.compile(
    r"(\d{1,12}(?:\.\d{1,9})?)\s*([kmgKMG]?)(?:(i?)B(?:/s)?|(bit(?:/s)?|bps))", re.ASCII
)
_DURATION: Final = re.compile(r"(?:\d{1,9}\s*[wdhms]\s*)+", re.IGNORECASE | re.ASCII)
_SECONDS: Final = {"w": 7 * 86400, "d": 86400, "h": 3600, "m": 60, "s": 1}
_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)", re.ASCII)


def parse_address(text: str, *, default_port: int | None = DEFAULT_PORT) -> Address:
    """``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT``; the port may be missing where there is a default.

    No host means every interface, port 0 a free one: this is where to listen.
    """
    text = text.strip()
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, "" if default_port is None else str(default_port)
    if ":" in host and not host.startswith("["):
        raise MisuseError(f"{text!r} is not an address: an IPv6 address needs brackets, as in [::1]:7423")
    if not (port.isascii() and port.isdigit()) or int(port[:6]) > 65535:
        raise MisuseError(f"{text!r} is not an address: write HOST:PORT with a port of 0 to 65535")
    if not _is_host(host):
        raise MisuseError(f"{text!r} is not an address: {host!r} is neither a host name nor an IP address")
    return Address(host.strip("[]"), int(port))


def parse_reachable(text: str) -> Address:
    """An address that others can dial: with a host, and a port that is not 0."""
    address = parse_address(text)
    if not address.host or not address.port:
        raise MisuseError(f"{text!r} cannot be dialed: write HOST:PORT")
    return address


def parse_size(text: str) -> int:
    """Bytes: ``6GiB`` (1024), ``500MB`` (1000), or a plain number. A bare ``6G`` is refused: which is it?"""
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[2] and text.strip()[-1] not in "bB"):
        raise MisuseError(f"{text!r} is not a size: write 6GiB, 500MB or a number of bytes")
    factor: int = (1024 if match[3] else 1000) ** _EXPONENTS.get((match[2] or "").lower(), 0)
    size = round(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor
    if size > MAX_BYTES:
        raise MisuseError(f"{text!r} is more than {MAX_BYTES >> 50} PiB")
    return size


def parse_rate(text: str) -> int:
    """Bytes a second: ``20Mbit`` or ``2.5MB/s``; 0 does not limit. A bare number is refused: of what?"""
    text = text.strip()
    if text == "0":
        return 0
    match = _RATE.fullmatch(text)
    if match is None:
        raise MisuseError(f"{text!r} is not a rate: write 20Mbit or 2.5MB/s")
    factor: int = (1024 if match[3] else 1000) ** _EXPONENTS.get(match[2].lower(), 0)
    rate = round(float(match[1]) * factor / (8 if match[4] else 1))
    if not MIN_RATE <= rate <= MAX_BYTES:
        raise MisuseError(f"{text!r} is too little for a link: give at least {MIN_RATE * 8 // 1000}kbit")
    return rate


def parse_duration(text: str) -> int:
    """Seconds: ``7d``, ``12h``, ``90m``, ``2w``, ``1d12h``."""
    if not _DURATION.fullmatch(text.strip()):
        raise MisuseError(f"{text!r} is not a duration: write 7d, 12h, 30m or 1d12h")
    parts = re.findall(r"(\d+)\s*([wdhms])", text.lower(), re.ASCII)
    seconds = sum(int(count) * _SECONDS[unit] for count, unit in parts)
    if seconds > MAX_SECONDS:
        raise MisuseError(f"{text!r} is more than a hundred years")
    return seconds


def _is_host(host: str) -> bool:
    if not host:
        return True
    if host.startswith("["):
        host = host[1:-1] if host.endswith("]") else ""
        return _is_ip(host, ipaddress.IPv6Address)
    if all(part.isdigit() for part in host.split(".")):
        return _is_ip(host, ipaddress.IPv4Address)
    return len(host) <= 253 and all(_LABEL.fullmatch(label) for label in host.removesuffix(".").split("."))


def _is_ip(text: str, kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address]) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True
