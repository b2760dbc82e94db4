"""From TOML to a ``Lab``: units become numbers, ``count`` becomes hosts, and presets are found by name."""

import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path as FilePath
from typing import Any, Final

import msgspec

from swarm.errors import MisuseError
from swarm.testing.netlab.schema import Lab
from swarm.testing.netlab.units import parse_duration, parse_rate, parse_share, parse_size

_UNITS: Final[Mapping[str, Callable[[str], float]]] = {
    "uplink": parse_rate,
    "downlink": parse_rate,
    "rate": parse_rate,
    "rtt": parse_duration,
    "jitter": parse_duration,
    "queue": parse_duration,
    "clock": parse_duration,
    "loss": parse_share,
    "memory": lambda text: round(parse_size(text)),
}
MAX_COUNT: Final = 1000
"""Hosts that one table may stand for."""


def parse_lab(text: str) -> Lab:
    """The lab that this TOML describes.

    Beside what ``schema`` says, a ``[[host]]`` may have a ``count``: ``name = "a", count = 3`` is the hosts
    a1, a2 and a3. Raises MisuseError, in one line, with whatever is wrong.
    """
    try:
        document = tomllib.loads(text)
        return msgspec.convert(_prepared(document), Lab)
    except tomllib.TOMLDecodeError as error:
        raise MisuseError(f"this is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise MisuseError(f"this does not describe a lab: {error}") from None


def load_lab(source: str | FilePath) -> Lab:
    """The lab of a file, or the preset of that name. Raises MisuseError."""
    if isinstance(source, str) and source in preset_names():
        return parse_lab(preset_text(source))
    path = FilePath(source)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        presets = ", ".join(preset_names())
        raise MisuseError(
            f"{source} is neither a file that can be read ({error}) nor one of {presets}"
        ) from None
    try:
        return parse_lab(text)
    except MisuseError as error:
        raise MisuseError(f"{source}: {error}") from None


def preset_names() -> list[str]:
    """The presets that come with the program."""
    return sorted(file.name.removesuffix(".toml") for file in _presets() if file.name.endswith(".toml"))


def preset_text(name: str) -> str:
    """The TOML of a preset, to be read and changed."""
    return (resources.files(__package__) / "presets" / f"{name}.toml").read_text("utf-8")


def _presets() -> list[Any]:
    return list((resources.files(__package__) / "presets").iterdir())


def _prepared(document: dict[str, Any]) -> dict[str, Any]:
    """The document with numbers for amounts, and single hosts for counted ones; msgspec finds the faults."""
    prepared = _with_numbers(document)
    for key in ("site", "host", "path"):
        tables = prepared.get(key)
        if isinstance(tables, list):
            prepared[key] = [_with_numbers(table) if isinstance(table, dict) else table for table in tables]
    if isinstance(prepared.get("host"), list):
        prepared["host"] = [host for table in prepared["host"] for host in _counted(table)]
    return prepared


def _with_numbers(table: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _UNITS[key](value) if key in _UNITS and isinstance(value, str) else value
        for key, value in table.items()
    }


def _counted(table: Any) -> list[Any]:
    if not (isinstance(table, dict) and "count" in table):
        return [table]
    count = table["count"]
    if type(count) is not int or not 1 <= count <= MAX_COUNT:
        raise MisuseError(f"count is a number of hosts from 1 to {MAX_COUNT}, not {count!r}")
    rest = {key: value for key, value in table.items() if key != "count"}
    return [rest | {"name": f"{table.get('name', '')}{number}"} for number in range(1, count + 1)]
