"""What all benchmarks share: a table of measurements with targets, and what they were measured on."""

import functools
import importlib.metadata
import math
import os
import platform
import re
import ssl
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

from swarm.services.version import program_version
from swarm.wire.limits import GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a ratio must be: at least ``least``, at most ``most``."""

    least: float = -math.inf
    most: float = math.inf

    def met(self, ratio: float) -> bool:
        """Whether ``ratio`` is what it must be."""
        return self.least <= ratio <= self.most

    def __str__(self) -> str:
        if self.least > -math.inf and self.most < math.inf:
            return f"{self.least:g} to {self.most:g}"
        return f"at least {self.least:g}" if self.least > -math.inf else f"at most {self.most:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measurement: two numbers beside each other in ``unit``, and the ratio that the target is about."""

    what: str
    first: float
    second: float
    unit: str
    ratio: float
    target: Target | None = None

    @property
    def missed(self) -> bool:
        """Whether there is a target and this is not it."""
        return self.target is not None and not self.target.met(self.ratio)


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    """What was measured: names and versions of programs, and the machine."""

    programs: dict[str, str]
    machine: str

    @classmethod
    def here(cls, *distributions: str, **others: str) -> "Versions":
        """Those of this process: Python, OpenSSL, this program, and the installed ``distributions``."""
        programs = {
            "fusion-swarm": program_version(),
            platform.python_implementation(): platform.python_version(),
            "OpenSSL": ssl.OPENSSL_VERSION.split()[1],
        }
        programs |= {name: importlib.metadata.version(name) for name in distributions}
        return cls(programs=programs | others, machine=describe_machine())


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """What one benchmark found. ``first`` and ``second`` head the columns of the two numbers."""

    title: str
    first: str
    second: str
    rows: Sequence[Row]
    versions: Versions
    remarks: Sequence[str] = ()
    """What was not measured and why, and what to know about the rest."""

    def text(self) -> str:
        """For people; also Markdown."""
        heads = ("what", self.first, self.second, "unit", "ratio", "target", "")
        lines = [heads, tuple("-" * len(head) for head in heads)]
        for row in self.rows:
            target = "" if row.target is None else str(row.target)
            verdict = "" if row.target is None else "MISSED" if row.missed else "met"
            numbers = (_shown(row.first), _shown(row.second), row.unit, f"{row.ratio:.2f}")
            lines.append((row.what, *numbers, target, verdict))
        widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
        table = [
            "| " + " | ".join(_padded(cell, width) for cell, width in zip(line, widths, strict=True)) + " |"
            for line in lines
        ]
        programs = ", ".join(f"{name} {version}" for name, version in self.versions.programs.items())
        notes = [self.versions.machine, programs, *self.remarks]
        return "\n".join([self.title, "", *table, "", *(f"- {note}" for note in notes)])

    def document(self) -> dict[str, Any]:
        """For programs: the same as data; a target that is none has no entry."""
        return {
            "title": self.title,
            "columns": [self.first, self.second],
            "rows": [_row_document(row) for row in self.rows],
            "versions": self.versions.programs,
            "machine": self.versions.machine,
            "remarks": list(self.remarks),
        }

    def publish(self, *, json: bool, check: bool) -> int:
        """Print it, as data where ``json``. Returns the exit status: 1 for a missed target with ``check``."""
        print(msgspec.json.encode(self.document()).decode() if json else self.text())
        missed = [row.what for row in self.rows if row.missed]
        if check and missed:
            sys.stderr.write(f"target missed: {'; '.join(missed)}\n")
            return 1
        return 0


def compared(
    what: str, first: Sequence[float], second: Sequence[float], *, unit: str, target: Target | None = None
) -> Row:
    """A row from repetitions taken in turns: medians, and the median of the ratios of each pair.

    A neighbour on the machine who slows one repetition slows both halves of its pair alike.
    """
    ratios = [mine / other for mine, other in zip(first, second, strict=True)]
    return Row(
        what=what,
        first=statistics.median(first),
        second=statistics.median(second),
        unit=unit,
        ratio=statistics.median(ratios),
        target=target,
    )


@functools.cache
def describe_machine() -> str:
    """Processor, cores, memory, system, and how busy it was when this was first asked."""
    memory = psutil.virtual_memory().total / GIB
    load = f", load {os.getloadavg()[0]:.1f} at the start" if hasattr(os, "getloadavg") else ""
    cores = f"{os.cpu_count()} cores, {memory:.0f} GiB"
    return f"{_processor()}, {cores}, {platform.system()} {platform.release()}{load}; compute not isolated"


def _processor() -> str:
    try:
        found = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _row_document(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {
        "what": row.what,
        "first": row.first,
        "second": row.second,
        "unit": row.unit,
        "ratio": row.ratio,
    }
    if row.target is not None:
        found |= {"target": str(row.target), "met": not row.missed}
    return found


def _shown(number: float) -> str:
    """Three digits that mean something, and all of those before the point."""
    digits = 0 if abs(number) >= 100 or number == int(number) else 1 if abs(number) >= 10 else 2
    return f"{number:,.{digits}f}"


def _padded(cell: str, width: int) -> str:
    return cell.rjust(width) if cell[:1].isdigit() else cell.ljust(width)
