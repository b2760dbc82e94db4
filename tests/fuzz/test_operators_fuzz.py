"""Whatever a stranger's graph calls with whatever arguments, the process lives: see ``operator_calls``."""

import subprocess
import sys
from pathlib import Path

import pytest

from swarm.graph.operators import ALLOWED
from swarm.train.program import SLICED_BACKWARD
from swarm.train.program_arguments import resolve

PROGRAM = Path(__file__).with_name("operator_calls.py")


def trouble(seed: int, calls: int) -> tuple[list[str], set[str]]:
    """What went wrong in the calls of ``seed``, and the operators that a call of worked."""
    begin, wrong, worked = 0, [], set()
    while begin < calls:
        command = [sys.executable, "-W", "ignore", str(PROGRAM), str(seed), str(calls), str(begin)]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = ended.stdout.splitlines()
        wrong += [line for line in lines if line.startswith("wrong")]
        started = [line for line in lines if line.startswith("call")]
        if lines and lines[-1].startswith("done"):
            worked.update(lines[-1].split()[1:])
            return wrong, worked
        assert started, ended.stderr[-1000:]
        wrong.append(f"ended by {ended.returncode}: {started[-1]}")
        begin = int(started[-1].split()[1]) + 1
    return wrong, worked


def takes_a_list(target: str) -> bool:
    schema = resolve(target)._schema
    return any("List[Tensor]" in str(parameter.type) for parameter in schema.arguments)


def test_every_operator_whose_gradient_is_a_slice_is_known():
    command = [sys.executable, "-W", "ignore", str(PROGRAM), "slicing", "2"]
    found = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert {"aten.diag_embed.default", "aten.slice_scatter.default", "aten.cat.default"} <= found
    assert {target for target in found if not takes_a_list(target)} <= SLICED_BACKWARD


@pytest.mark.slow
def test_hostile_calls_of_every_operator_end_no_process():
    wrong, worked = trouble(seed=1, calls=4 * len(ALLOWED))
    assert wrong == []
    assert len(worked) > 0.8 * len(ALLOWED), sorted(ALLOWED - worked)
