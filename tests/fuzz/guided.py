"""Coverage-guided fuzzing of every parser of foreign bytes, by atheris (libFuzzer).

    python tests/fuzz/guided.py --seconds 600            every target in turn, so long each
    python tests/fuzz/guided.py --seconds 60 messages    one of them
    python tests/fuzz/guided.py --all 30                 so long over all of them together

Each target runs in a process of its own, begins with its stored corpus, and ends at the first finding, whose
input it leaves in ``build/fuzz``. ``--keep`` adds to the stored corpus what reached something new. Where
there is no atheris (it has wheels for some systems only) nothing is run, and a line says so.
"""

import argparse
import importlib
import importlib.util
import logging
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import guided_target
from guided_mutation import mutated
from guided_target import CORPUS, Target

MODULES = {
    "frames": "guided_wire",
    "messages": "guided_wire",
    "graphs": "guided_wire",
    "records": "guided_wire",
    "envelopes": "guided_identity",
    "invites": "guided_identity",
    "certificates": "guided_identity",
    "revocation_lists": "guided_identity",
    "datagrams": "guided_dht",
    "tensors": "guided_tensors",
    "coded_tensors": "guided_tensors",
    "status_requests": "guided_status",
}
"""Targets, and where they are."""

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "build" / "fuzz"
LONGEST_INPUT = 8192
SLOWEST_SECONDS = 10
"""An input that takes longer is a finding."""
MOST_MIB = 2048
"""A process that takes more is a finding."""
START_SECONDS = 300
"""For the imports, on a busy machine."""


def target_of(name: str) -> Target:
    """The target, imported now: under instrumentation where the caller has switched that on."""
    target: Target = importlib.import_module(MODULES[name]).TARGETS[name]
    return target


def fuzz(name: str, arguments: list[str]) -> None:
    """Run one target in this process, which libFuzzer ends."""
    import atheris  # noqa: PLC0415 - it is not everywhere

    with atheris.instrument_imports(include=["swarm"]):
        target = target_of(name)
    guided_target.landmarks[:] = map(atheris.instrument_func, guided_target.landmarks)
    logging.disable(logging.CRITICAL)

    def mutate(data: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if target.packed is not None and chance.random() < 0.6:
            changed = mutated(data, target.packed, chance)
            if changed is not None and len(changed) <= most:
                return changed
        return bytes(atheris.Mutate(data, most))

    atheris.Setup([sys.argv[0], *arguments], target.parse, custom_mutator=mutate)
    atheris.Fuzz()


def run(name: str, seconds: int, *, keep: bool) -> bool:
    """Fuzz one target in a process of its own; True where nothing was found, or there is no atheris."""
    if importlib.util.find_spec("atheris") is None:
        print(f"{name:18} no atheris for this system: the smoke runs of pytest tests/fuzz stand alone")
        return True
    FINDINGS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as new:
        command = [
            sys.executable, str(Path(__file__)), "--inside", name,
            str(CORPUS / name if keep else new), str(CORPUS / name),
            f"-max_total_time={seconds}", f"-max_len={LONGEST_INPUT}", f"-timeout={SLOWEST_SECONDS}",
            f"-rss_limit_mb={MOST_MIB}", f"-artifact_prefix={FINDINGS}/{name}-", "-print_final_stats=1",
        ]  # fmt: skip
        try:
            ended = subprocess.run(
                command, capture_output=True, text=True, errors="replace", check=False,
                timeout=seconds + START_SECONDS + SLOWEST_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired as hanging:
            print(f"{name:18} FAILED: it hangs\n{hanging.stderr!r}")
            return False
    lines = ended.stderr.splitlines()
    facts = [line.split()[-1] for line in lines if line.startswith("stat::number_of_executed_units")]
    covered = [line for line in lines if " cov: " in line]
    reached = covered[-1].split(" cov: ")[1].split()[0] if covered else "0"
    good = ended.returncode == 0 and bool(facts)
    count, word = facts[0] if facts else "0", "ok" if good else "FAILED"
    print(f"{name:18} {word:7} {seconds:5} s {count:>9} inputs, coverage {reached}", flush=True)
    if not good:
        print("\n".join((ended.stdout + ended.stderr).splitlines()[-60:]))
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description="coverage-guided fuzzing of the parsers of foreign bytes")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(MODULES)}; default: all")
    parser.add_argument("--seconds", type=int, default=600, help="for each target")
    parser.add_argument("--all", type=int, help="seconds for all targets together")
    parser.add_argument("--keep", action="store_true", help="add what is new to the stored corpus")
    asked = parser.parse_args()
    names = asked.targets or list(MODULES)
    if unknown := [name for name in names if name not in MODULES]:
        parser.error(f"there is no target {unknown[0]}")
    seconds = max(asked.all // len(names), 1) if asked.all else asked.seconds
    results = [run(name, seconds, keep=asked.keep) for name in names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        fuzz(sys.argv[2], sys.argv[3:])
    sys.exit(main())
