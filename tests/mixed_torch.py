"""Peers of two versions of torch train one job together, as real processes. Run by ``make test-mixed-torch``.

python tests/mixed_torch.py SWARM-COMMAND-OF-THE-OTHER-VERSION

One peer of each version, and less memory than either would need alone. Authors of both versions publish the
example GPT, and the curves of the two jobs have to agree but for rounding.
"""

import json
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

EXAMPLE = str(Path(__file__).parents[1] / "examples" / "gpt.py")
STEPS = 10
MEMORY = "10MiB"
"""Two peers need 9.3 MiB each, one alone 13.2 MiB."""
TOLERANCE = 1e-3
"""Largest relative difference of a step's loss between the two jobs."""
SECONDS = 600.0
"""That any command may take: catches hangs."""


class Terminal:
    """One version's commands, with homes in a folder of its own."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        script = "import torch; print(torch.__version__)"
        python = [str(program.with_name("python")), "-c", script]
        self.torch = subprocess.run(python, check=True, capture_output=True, text=True).stdout.strip()

    def type(self, *words: str) -> str:
        """What a command prints that runs to its end."""
        done = subprocess.run(
            self._command(*words), stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS
        )
        return done.stdout

    def start(self, stack: ExitStack, *words: str) -> subprocess.Popen[str]:
        """A program that goes on until the stack ends."""
        process = subprocess.Popen(self._command(*words), stdout=subprocess.PIPE, text=True)
        stack.callback(process.wait, SECONDS)
        stack.callback(process.terminate)
        return process

    def _command(self, *words: str) -> list[str]:
        return [str(self.program), *words, "--home", str(self.folder)]


def run(terminals: list[Terminal], stack: ExitStack) -> list[list[float]]:
    """The losses of the job of an author of each version, which peers of all versions share."""
    first = terminals[0]
    invite = first.type("create", "lab").strip()
    door = first.start(stack, "bootstrap", "--invite", invite, "--listen", "127.0.0.1:0")
    assert door.stdout is not None
    invite = door.stdout.readline().strip()
    for terminal in terminals:
        named = ("--invite", invite, "--name", "peer", "--listen", ":0")
        terminal.start(stack, "peer", *named, "--memory", MEMORY)
    words = ("--invite", invite, "--name", "author", "--steps", str(STEPS), "--json")
    losses = [json.loads(terminal.type("train", EXAMPLE, *words))["loss"] for terminal in terminals]
    for job in json.loads(first.type("jobs", "--name", "peer", "--json"))["jobs"]:
        assert len({stage["holder"] for stage in job["stages"]}) == len(terminals), job
    return losses


def main() -> None:
    """Run the jobs; raises AssertionError where they do not agree."""
    programs = [Path(sys.executable).with_name("swarm"), Path(sys.argv[1]).absolute()]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        terminals = [Terminal(program, Path(folder) / f"{i}") for i, program in enumerate(programs)]
        versions = [terminal.torch for terminal in terminals]
        assert len(set(versions)) == len(versions), versions
        results = run(terminals, stack)
    for version, losses in zip(versions, results, strict=True):
        print(f"author with torch {version}: loss {losses[0]:.6f} to {losses[-1]:.6f}")
        assert len(losses) == STEPS
        assert losses[-1] < losses[0]
    apart = max(abs(one / other - 1.0) for one, other in zip(*results, strict=True))
    print(f"peers with torch {' and '.join(versions)} shared both jobs; the curves differ by {apart:.2g}")
    assert apart < TOLERANCE


if __name__ == "__main__":
    main()
