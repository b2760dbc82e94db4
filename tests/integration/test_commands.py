"""The commands as their users meet them: real processes on loopback, one home, from create to export."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from swarm.testing.shell import LOOPBACK, Shell, interrupt, read_until
from swarm.testing.tiny_job import write_tiny_job

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.mark.slow
def test_from_create_to_export(shell: Shell, tmp_path: Path) -> None:
    write_tiny_job(tmp_path)
    node, invite = shell.bootstrap()
    peers = [shell.peer(f"peer{number}", invite, "7000") for number in (1, 2)]

    done = shell.json("train", str(tmp_path / "tiny.py"), "--invite", invite, "--steps", "10")
    assert set(done) == {"job", "loss", "validations", "tokens_per_second", "seconds"}
    assert len(done["loss"]) == 10
    assert done["loss"][-1] < done["loss"][0]
    job = done["job"]

    [listed] = shell.json("jobs")["jobs"]
    assert (listed["id"], listed["state"], listed["step"]) == (job, "done", 10)
    assert job[:8] in shell.run("jobs").stdout

    status = shell.json("status", "--name", "peer1")
    assert len(status["jobs"][0]["stages"]) == 2, "neither peer could hold it alone"
    assert {member["role"] for member in status["members"]} >= {"peer", "bootstrap"}
    found = shell.json("members", "lab")["members"]
    assert {member["role"] for member in found} == {"peer", "bootstrap", "author"}

    weights = tmp_path / "tiny.safetensors"
    report = shell.json("export", job[:6], "-o", str(weights))
    assert (report["job"], report["path"]) == (job, str(weights))
    assert loads_into_the_model(tmp_path, weights) == pytest.approx(listed["held_out"], rel=1e-6)
    again = shell.run("cancel", job[:6])
    assert again.returncode == 1
    assert again.stderr == f"swarm: job {job[:8]} has ended already: it is done\n"

    assert shell.json("pause", "--name", "peer1")["stages"] == 0
    assert "swarm: this node (bootstrap) holds no stages" in shell.run("resume", "--name", "bootstrap").stderr

    for process in [*peers, node]:
        assert interrupt(process) < 5
        assert process.returncode == 0
    assert not list(tmp_path.glob("*/running.json"))


def loads_into_the_model(folder: Path, weights: Path) -> float:
    """The held-out loss of the author's own module with the exported weights."""
    script = (
        "import sys; from tiny import job; from safetensors.torch import load_file\n"
        "from swarm.train.reference import held_out_loss\n"
        "job.model.load_state_dict(load_file(sys.argv[1]), strict=True)\n"
        "print(held_out_loss(job.model, job.loss, job.held_out, job.micro_batch_size))"
    )
    path = os.pathsep.join((str(folder), str(ROOT)))
    result = subprocess.run(
        [sys.executable, "-c", script, str(weights)],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return float(result.stdout)


@pytest.mark.slow
def test_a_job_that_waits_says_for_what_and_can_be_cancelled(shell: Shell, tmp_path: Path) -> None:
    write_tiny_job(tmp_path)
    _, invite = shell.bootstrap()
    shell.peer("peer1", invite, "4KiB")
    author = shell.start("peer", "train", str(tmp_path / "tiny.py"), "--invite", invite)
    read_until(author, "state=waiting")
    status = shell.json("status", "--name", "author")
    [job] = status["jobs"]
    assert job["state"] == "waiting"
    assert status["waiting"]["job"] == job["id"]
    assert status["waiting"]["for"]
    cancelled = shell.run("cancel", job["id"][:8])
    assert cancelled.returncode == 0, cancelled.stderr
    _, err = author.communicate(timeout=60)
    assert author.returncode == 1
    last = err.splitlines()[-1]
    assert last.startswith(f"swarm: job {job['id'][:8]} was cancelled")


@pytest.mark.slow
def test_detached_training_goes_on_without_its_author(shell: Shell, tmp_path: Path) -> None:
    write_tiny_job(tmp_path)
    _, invite = shell.bootstrap()
    shell.peer("peer1", invite, "1MiB")
    detached = shell.run("train", str(tmp_path / "tiny.py"), "--invite", invite, "--detach")
    assert detached.returncode == 0, detached.stderr
    job = detached.stdout.strip()
    weights = tmp_path / "w.safetensors"
    while not weights.exists():  # each export is a process of its own that waits for news of the job
        shell.run("export", job, "-o", str(weights))
    assert weights.stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_who_is_revoked_is_out_even_with_a_new_home(shell: Shell, tmp_path: Path) -> None:
    bootstrap, _ = shell.bootstrap()
    ann = tmp_path / "ann.invite"
    ann.write_text(shell.json("invite", "lab", "--label", "Ann")["invite"])
    # Ann's machine is another one: what she runs has a base of its own.
    theirs = Shell(tmp_path / "ann")
    theirs.home.mkdir()
    try:
        peer = theirs.peer("peer1", str(ann), "1MiB")
        read_until(bootstrap, "linked with peer")
        [met] = [m for m in shell.json("members", "lab")["members"] if m["label"] == "Ann"]
        report = shell.json("revoke", "lab", met["peer"][:6])
        assert (report["peers"], report["invites"]) == ([met["peer"]], [met["invite"]])
        assert report["news"]
        assert "the organiser revoked you on" in read_until(peer, "swarm: ")
        assert peer.wait(timeout=30) == 1
        for home in ("peer1", "again"):  # the old key, and a new one by the same invite
            refused = theirs.run("jobs", "--name", home, "--invite", str(ann))
            assert refused.returncode == 1
            assert "the organiser revoked you" in refused.stderr
            assert refused.stderr.count("\n") == 1
        door = shell.json("status", "--name", "bootstrap")["peer"]["addresses"][0]
        interrupt(bootstrap)
        read_until(shell.start("bootstrap", "--listen", door), "bootstrap node of swarm lab at ")
        shutil.rmtree(theirs.home)  # everybody has restarted, and Ann's machine is a new one
        theirs.home.mkdir()
        refused = theirs.run("jobs", "--invite", ann.read_text())
        assert refused.returncode == 1
        assert "the organiser revoked your invite" in refused.stderr
        assert [m["revoked"] for m in shell.json("members", "lab")["members"] if m["label"] == "Ann"] == [
            True
        ]
    finally:
        theirs.close()


def test_failures_are_one_line_with_what_to_do(shell: Shell) -> None:
    node, invite = shell.bootstrap()
    taken = read_until(node, "bootstrap node of swarm lab at ").rsplit(" ", 1)[1].strip()
    stranger = json.loads(shell.run("create", "lab2", "--json").stdout)["invite"]
    cases = [
        (("bootstrap", "--invite", invite), 1, "home in use by process "),
        (("bootstrap", "--invite", invite, "--name", "b", "--listen", taken), 1, "give --listen HOST:PORT"),
        (("bootstrap", "--name", "b"), 2, "give --invite to join a swarm"),
        (("bootstrap", "--name", "b", "--invite", invite[:-9]), 2, "cut off"),
        (("jobs", "--name", "c", "--invite", stranger), 1, "the invite has no address in it"),
        (("cancel", "zz", "--invite", invite), 2, "no job begins with 'zz'"),
    ]
    for words, status, told in cases:
        result = shell.run(*words)
        assert result.returncode == status, result.stderr
        assert told in result.stderr
        assert result.stderr.count("\n") == 1, result.stderr
        assert result.stdout == ""
    interrupt(node)
    gone = shell.run("jobs", "--invite", invite)
    assert gone.returncode == 1
    assert gone.stderr.startswith("swarm: no bootstrap node answers: 127.0.0.1:")
    assert gone.stderr.count("\n") == 1


def test_who_joins_only_to_look_is_told_what_it_cost(shell: Shell) -> None:
    shell.bootstrap()
    ann = shell.json("invite", "lab", "--label", "Ann", "--uses", "2")["invite"]
    looked = ("jobs", "--name", "look")
    first = shell.run(*looked, "--invite", ann).stderr.splitlines()
    assert first[0].startswith("joined the swarm lab as peer ")
    assert f" by one of the 2 uses of the invite; it is kept in {shell.home / 'look'}" in first[0]
    assert first[1:] == ["swarm lab has no jobs"]
    assert shell.run(*looked).stderr == "swarm lab has no jobs\n"


def test_a_failed_entry_leaves_the_home_free_for_another_swarm(shell: Shell) -> None:
    first, second = (shell.json("create", name)["invite"] for name in ("lab", "lab2"))
    assert "has no address" in shell.run("jobs", "--invite", first).stderr
    assert "has no address" in shell.run("jobs", "--invite", second).stderr


def test_a_peer_whose_starter_is_killed_ends_too(shell: Shell) -> None:
    starter = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    invite = shell.create()
    words = ["--invite", str(invite), "--listen", LOOPBACK, "--parent", str(starter.pid)]
    node = shell.start("bootstrap", *words)
    assert node.stdout is not None
    assert node.stdout.readline().startswith("swarm1")
    starter.kill()
    starter.communicate()
    node.wait(timeout=30)
    assert node.returncode == 0


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = sys.modules["safetensors"] = None
sys.argv = ["swarm", *sys.argv[1:]]
from peer.main import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [
        ("demo",),
        ("peer", "--invite", "x"),
        ("train", "job.py", "--invite", "x"),
        ("export", "abc", "-o", "x.safetensors"),
    ],
)
def test_without_torch_four_commands_say_what_to_install(tmp_path: Path, words: tuple[str, ...]) -> None:
    result = without_torch(tmp_path, *words)
    assert result.returncode == 1
    assert result.stderr == 'swarm: install the training part: pip install "fusion-swarm[peer]"\n'
    assert not (tmp_path / "home").exists()


def test_without_torch_everything_else_works(tmp_path: Path) -> None:
    for command in ("demo", "create", "invite", "members", "revoke", "bootstrap", "peer", "train",
                    "jobs", "cancel", "export", "pause", "resume", "status"):  # fmt: skip
        result = without_torch(tmp_path, command, "--help")
        assert result.returncode == 0, result.stderr
        assert "Example:" in result.stdout
    assert without_torch(tmp_path, "create", "lab").returncode == 0
    assert without_torch(tmp_path, "invite", "lab", "--label", "Ann").returncode == 0
    assert without_torch(tmp_path, "members", "lab").returncode == 0
    for words in (("status",), ("jobs",), ("cancel", "abc"), ("pause",)):
        result = without_torch(tmp_path, *words)
        assert result.stderr.startswith("swarm: "), result.stderr
        assert result.stderr.count("\n") == 1
        assert "pip install" not in result.stderr


def without_torch(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *words],
        cwd=ROOT,
        env=os.environ | {"SWARM_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    "module", ["bootstrap.node", "peer.main", "peer.commands.jobs", "peer.commands.status"]
)
def test_torch_is_loaded_by_nobody_who_does_not_train(module: str) -> None:
    script = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True, timeout=60)


def test_no_process_is_left_behind(shell: Shell) -> None:
    node, _ = shell.bootstrap()
    family = psutil.Process(node.pid).children(recursive=True)
    interrupt(node)
    assert not [process for process in family if process.is_running()]


def test_watching_goes_on_through_a_restart_until_it_is_interrupted(shell: Shell) -> None:
    node, invite = shell.bootstrap()
    watch = shell.start("peer", "status", "--watch")
    assert watch.stdout is not None
    assert watch.stdout.readline().startswith("swarm lab  bootstrap (")
    interrupt(node)
    while not watch.stdout.readline().startswith("no node runs in"):
        pass
    shell.start("bootstrap", "--listen", LOOPBACK)
    while not watch.stdout.readline().startswith("swarm lab  bootstrap ("):
        pass
    assert invite
    assert interrupt(watch) < 5
    assert watch.returncode == 0
