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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
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
ROOT_TESTS = ("tests/netlab", "tests/integration/disks")
CALLS = 40 * len(ALLOWED)
NUMERICS = ("tests/numerics/test_zoo.py", "tests/numerics/test_memory.py")


def suite(*arguments: str, **environment: str) -> bool:
    """Whether these tests pass, with more in their ``environment``."""
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    return subprocess.run(command, cwd=ROOT, check=False, env=os.environ | environment).returncode == 0


def operators() -> bool:
    """Hostile calls of every operator, others every night."""
    wrong, _ = trouble(seed=int(clock.wall()), calls=CALLS)
    print("\n".join(wrong))
    return not wrong


def root_tests() -> bool:
    """Networks between homes and small disks take root on Linux."""
    if platform.system() == "Linux" and os.geteuid() == 0:
        return suite(*ROOT_TESTS)
    print(f"left out: {' '.join(ROOT_TESTS)}, which take root on Linux")
    return True


def snapshots() -> bool:
    """Whether lines cost training no more than they may, between homes."""
    if platform.system() == "Linux" and os.geteuid() == 0:
        command = [sys.executable, "benchmarks/snapshots.py", "--check"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    print("left out: benchmarks/snapshots.py, which takes root on Linux")
    return True


def fuzz(name: str) -> bool:
    """Ten minutes of guided fuzzing."""
    return guided.run(name, TARGET_SECONDS, keep=False)


PARTS: dict[str, Callable[[], bool]] = {
    "tests": lambda: suite("-n", "auto", *(f"--ignore={folder}" for folder in ROOT_TESTS)),
    "numerics": lambda: suite(*NUMERICS, "-n", "auto", "--hypothesis-profile", "nightly"),
    "root": root_tests,
    "snapshots": snapshots,
    "operators": operators,
    "power cuts": lambda: suite("tests/integration/test_power_cuts.py", SWARM_CUTS="50"),
    "hand-overs": lambda: suite("tests/integration/test_handover.py", SWARM_MOVES="20"),
    "churn": lambda: suite("tests/unit/dht/test_churn.py", "--log-cli-level=INFO", SWARM_SOAK="1"),
}
FUZZ: dict[str, Callable[[], bool]] = {f"fuzz {name}": partial(fuzz, name) for name in guided.MODULES}
"""Parts that may run at once: they measure nothing."""


def run(name: str, part: Callable[[], bool]) -> tuple[bool, str]:
    """Whether a part went well, and its row."""
    start = clock.elapsed()
    good = part()
    return good, f"| {name} | {'ok' if good else 'FAILED'} | {clock.elapsed() - start:.0f} |"


def main() -> int:
    every = PARTS | FUZZ
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(every)}; default: all")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="parts of fuzzing at a time")
    asked = parser.parse_args()
    names = asked.parts or list(every)
    began = datetime.datetime.now(datetime.UTC)
    results = [run(name, PARTS[name]) for name in names if name in PARTS]
    with ThreadPoolExecutor(asked.at_once) as pool:
        fuzzing = [name for name in names if name in FUZZ]
        results += pool.map(run, fuzzing, [FUZZ[name] for name in fuzzing])
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()
    facts = (
        f"Begun {began:%Y-%m-%d %H:%M} UTC at commit {commit or 'unknown'}, with Python "
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"torch {version('torch')}; {asked.at_once} parts of fuzzing at a time."
    )
    table = ["| part | result | seconds |", "|---|---|---|", *(row for _, row in results)]
    REPORT.write_text("\n".join(["# Last nightly run", "", facts, "", *table, ""]), "utf-8")
    print("\n".join(table))
    return 0 if all(good for good, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
