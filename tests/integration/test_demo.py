"""``swarm demo`` with real processes: what it prints, what it leaves, and how it ends early."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]


def start(folder: Path, *words: str) -> "subprocess.Popen[str]":
    """A demo whose temporary files are in ``folder``."""
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "peer", "demo", *words],
        cwd=folder,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder), "TEMP": str(folder), "TMP": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def read_until(process: "subprocess.Popen[str]", wanted: str) -> list[str]:
    """The lines of standard error up to the one with ``wanted`` in it."""
    assert process.stderr is not None
    seen: list[str] = []
    for line in process.stderr:
        seen.append(line)
        if wanted in line:
            return seen
    raise AssertionError("".join(seen))


def children_of(lines: list[str]) -> list[psutil.Process]:
    """The processes that the demo said it started."""
    return [
        psutil.Process(int(line.split("process ")[1].split(",")[0])) for line in lines if ": process " in line
    ]


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith("swarm-demo-") and path.is_dir()]


@pytest.mark.slow
def test_a_short_demo_equals_pytorch_and_one_process(tmp_path: Path) -> None:
    weights = tmp_path / "w.safetensors"
    words = ["--model", "resnet", "--peers", "2", "--steps", "6", "--verify", "--json", "-o", str(weights)]
    process = start(tmp_path / "run", *words)
    out, err = process.communicate(timeout=110)
    assert process.returncode == 0, err
    document = json.loads(out)
    assert len(document["loss"]) == 6
    assert document["verify"]["pytorch"] <= 1e-5
    assert document["verify"]["self"] is True
    assert sorted(stage for peer in document["peers"] for stage in peer["stages"]) == [0, 1]
    assert all(peer["bytes_sent"] > 10_000 and peer["bytes_received"] > 10_000 for peer in document["peers"])
    assert [stage["holder"] for stage in document["plan"]["stages"]]
    assert document["weights"] == str(weights)
    assert weights.stat().st_size > 10_000
    assert document["status_url"].startswith("http://127.0.0.1:")
    assert not leftovers(tmp_path / "run")


@pytest.mark.slow
def test_an_interrupted_demo_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    process = start(tmp_path, "--peers", "2", "--steps", "2000")
    children = children_of(read_until(process, "state=training"))
    assert len(children) == 3
    began = time.monotonic()  # noqa: TID251 - a promise about real processes in real time
    process.send_signal(getattr(signal, "CTRL_BREAK_EVENT", signal.SIGINT))
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 5  # noqa: TID251
    assert process.returncode == 130
    assert out == ""
    assert err.splitlines()[-1] == "interrupted: every process of the demo has ended"
    assert not [child for child in children if child.is_running()]
    assert not leftovers(tmp_path)


@pytest.mark.slow
def test_a_lost_peer_fails_the_demo_in_one_line_that_names_it(tmp_path: Path) -> None:
    process = start(tmp_path, "--peers", "2", "--steps", "2000")
    children = children_of(read_until(process, "state=training"))
    children[-1].kill()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    last = err.splitlines()[-1]
    assert last.startswith("swarm: ")
    # Who notices first, the demo or the other peer, and how the connection ended, is a race.
    assert re.search(
        r"peer2 ended with status|peer [a-z2-7]{8} (left|closed the connection|was lost)", last
    ), last
    assert not [child for child in children if child.is_running()]
    assert not leftovers(tmp_path)
