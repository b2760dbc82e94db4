"""What takes too long for every change: run by ``make nightly``. The last result is in docs/NIGHTLY.md.

python tests/nightly.py [PART ...]
"""

import argparse
import datetime
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "fuzz"))
import guided  # noqa: E402 - it lies in the folder above
from test_operators_fuzz import trouble  # noqa: E402

from swarm import clock  # noqa: E402
from swarm.graph.operators import ALLOWED  # noqa: E402

REPORT = ROOT / "docs" / "NIGHTLY.md"
TARGET_SECONDS = 600
CALLS = 40 * len(ALLOWED)


def suite(*arguments: str) -> bool:
    """Whether these tests pass."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def operators() -> bool:
    """Hostile calls of every operator, others every night."""
    wrong, _ = trouble(seed=int(clock.wall()), calls=CALLS)
    print("\n".join(wrong))
    return not wrong


PARTS: dict[str, Callable[[], bool]] = {
    "tests": lambda: suite("-n", "auto", "--ignore", "tests/netlab"),
    "netlab": lambda: suite("tests/netlab"),
    "operators": operators,
} | {
    f"fuzz {name}": lambda name=name: guided.run(name, TARGET_SECONDS, keep=False)  # type: ignore[misc]
    for name in guided.MODULES
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default: all")
    names = parser.parse_args().parts or list(PARTS)
    began = datetime.datetime.now(datetime.UTC)
    rows, failed = [], False
    for name in names:
        start = clock.elapsed()
        good = PARTS[name]()
        failed |= not good
        rows.append(f"| {name} | {'ok' if good else 'FAILED'} | {clock.elapsed() - start:.0f} |")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    facts = (
        f"Begun {began:%Y-%m-%d %H:%M} UTC at commit {commit or 'unknown'}, with Python "
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"torch {version('torch')}."
    )
    table = ["| part | result | seconds |", "|---|---|---|", *rows]
    REPORT.write_text("\n".join(["# Last nightly run", "", facts, "", *table, ""]), "utf-8")
    print("\n".join(table))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
