"""Labs begin and end whole: nothing stays behind, and the machine around them notices nothing."""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from swarm.errors import FailureError
from swarm.testing.netlab import state
from swarm.testing.netlab.description import load_lab, parse_lab
from swarm.testing.netlab.forwarding import program_environment
from swarm.testing.netlab.plugin import SWITCH, StartLab
from swarm.testing.netlab.processes import network_of
from swarm.testing.netlab.running import find_lab, start_lab

SMALL = """
name = "small"
[[site]]
name = "x"
[[site]]
name = "y"
[[host]]
name = "a"
site = "x"
cpu = 0.1
clock = 0
[[host]]
name = "b"
site = "y"
[[path]]
between = ["x", "y"]
rtt = "2ms"
"""
OWNER = """
import sys
from swarm.testing.netlab.description import parse_lab
from swarm.testing.netlab.running import start_lab
lab = start_lab(parse_lab(sys.stdin.read()), name=sys.argv[1])
(lab.folder / "kept").mkdir()
process = lab.popen("a", ["sleep", "1000"])
print(process.pid, flush=True)
process.wait()
"""
NUMBERS = itertools.count(1)


def leftovers(name: str) -> list[str]:
    """Everything on this machine that bears the name of a lab."""
    places = ["/run/netns", "/etc/netns", "/run/swarm-netlab"]
    places += [
        line.split()[1] for line in Path("/proc/mounts").read_text("utf-8").splitlines() if "cgroup" in line
    ]
    found = []
    for place in places:
        if Path(place).exists():
            found += [str(entry) for entry in Path(place).iterdir() if f"{name}." in f"{entry.name}."]
    return found


def outside() -> str:
    """What the machine's own network looks like."""
    commands = (["ip", "-br", "address"], ["ip", "route", "show", "table", "all"], ["ip", "rule"])
    return "".join(
        subprocess.run(words, capture_output=True, text=True, check=True).stdout for words in commands
    )


def command(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "swarm.testing.netlab", *words],
        env=program_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.fixture
def name(netlab: StartLab) -> Iterator[str]:
    """A name for a lab that the test starts in another way; ``netlab`` says what is missing."""
    chosen = f"life-{os.getpid()}-{next(NUMBERS)}"
    yield chosen
    found = state.load(chosen)
    if found is not None and found.is_kept:  # the test has failed
        command("down", chosen)


def test_nothing_is_left_and_nothing_is_touched(netlab: StartLab, name: str) -> None:
    before = outside()
    with start_lab(parse_lab(SMALL), name=name) as lab:
        assert outside() == before
        process = lab.popen("a", ["sleep", "1000"])
        assert len(leftovers(name)) > 5
    assert process.returncode == -9
    assert leftovers(name) == []
    assert outside() == before
    with pytest.raises(FailureError, match="has ended"):
        lab.cut("x")


def test_a_lab_ends_when_its_test_fails(netlab: StartLab, name: str) -> None:
    with pytest.raises(ZeroDivisionError), start_lab(parse_lab(SMALL), name=name):
        raise ZeroDivisionError
    assert leftovers(name) == []


def test_the_next_start_clears_away_what_a_killed_owner_left(netlab: StartLab, name: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=program_environment(),
        text=True,
    )
    with owner:
        owner.stdin.write(SMALL)
        owner.stdin.close()
        inner = int(owner.stdout.readline())
        with pytest.raises(FailureError, match=f"a lab {name} is up already, of process {owner.pid}"):
            start_lab(parse_lab(SMALL), name=name)
        owner.send_signal(signal.SIGKILL)
    assert leftovers(name) != []
    netlab(SMALL)
    assert leftovers(name) == []
    assert network_of(inner) is None


def test_two_labs_with_the_same_addresses_run_at_once(netlab: StartLab) -> None:
    labs = [netlab(SMALL), netlab(SMALL)]
    assert labs[0].address("b") == labs[1].address("b")
    for number, lab in enumerate(labs):
        server = lab.popen("b", ["python3", "-c", SERVE, str(number)], stdout=subprocess.PIPE, text=True)
        with server:
            assert server.stdout.readline() == "ready\n"
            assert lab.run("a", ["python3", "-c", FETCH, lab.address("b")]).stdout.strip() == str(number)
            server.kill()


SERVE = """
import socket, sys
server = socket.create_server(("0.0.0.0", 4000))
print("ready", flush=True)
while True:
    server.accept()[0].sendall(sys.argv[1].encode())
"""
FETCH = """
import socket, sys
print(socket.create_connection((sys.argv[1], 4000)).recv(10).decode())
"""


def test_a_lab_that_asks_for_too_much_is_refused(netlab: StartLab, name: str) -> None:
    cores = len(os.sched_getaffinity(0))
    with pytest.raises(FailureError, match=rf"asks for {cores + 1}\.1 cores, and this machine has {cores}"):
        start_lab(parse_lab(SMALL.replace('name = "b"', f'name = "b"\ncpu = {cores + 1}')), name=name)
    with pytest.raises(FailureError, match=r"GiB of memory, and this machine has"):
        start_lab(parse_lab(SMALL.replace('name = "b"', 'name = "b"\nmemory = "100TiB"')), name=name)
    with pytest.raises(FailureError, match=r"this description is for planning"):
        start_lab(load_lab("testbed-48"), name=name)
    with pytest.raises(FailureError, match=r"passes netlab's forwarder, which carries 400 Mbit/s"):
        start_lab(parse_lab(SMALL.replace('rtt = "2ms"', 'rtt = "2ms"\nrate = "1Gbit"')), name=name)
    assert leftovers(name) == []


def test_two_labs_together_may_not_ask_for_more_than_there_is(netlab: StartLab, name: str) -> None:
    cores = len(os.sched_getaffinity(0))
    first = netlab(SMALL.replace("cpu = 0.1", f"cpu = {cores}"))
    with pytest.raises(FailureError, match=rf"this machine has 0, beside .*{first.name}"):
        start_lab(parse_lab(SMALL), name=name)


def test_the_commands_work_by_hand(netlab: StartLab, name: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(SMALL, encoding="utf-8")

    def good(*words: str) -> str:
        done = command(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert good("up", str(file), "--name", name) == f"{name} is up: a, b\n"
    try:
        assert good("exec", "--lab", name, "a", "--", "cat", "/etc/hosts").splitlines()[-1] == "26.2.1.10 b"
        assert command("exec", "--lab", name, "a", "--", "sh", "-c", "exit 7").returncode == 7
        assert "host a at x: 26.1.1.10" in good("status")
        good("rate", "--lab", name, "x", "--up", "5Mbit")
        good("rate", "--lab", name, "x", "y", "--both", "6Mbit")
        good("clock", "--lab", name, "a", "1h")
        assert find_lab(name).lab.rate("a", "b") == 5e6
        for words in (
            ("cut", "x", "y"),
            ("heal",),
            ("partition", "x", "y"),
            ("heal", "x", "y"),
            ("freeze", "a"),
            ("thaw", "a"),
            ("kill", "a"),
        ):
            good(words[0], "--lab", name, *words[1:])
        assert command("up", str(file), "--name", name).returncode == 1
    finally:
        ended = command("down", name)
    assert (ended.returncode, ended.stdout) == (0, f"ended: {name}\n")
    assert leftovers(name) == []


def test_a_killed_keepers_lab_goes_with_down(netlab: StartLab, name: str, tmp_path: Path) -> None:
    file = tmp_path / "lab.toml"
    file.write_text(SMALL, encoding="utf-8")
    assert command("up", str(file), "--name", name).returncode == 0
    state = json.loads(Path(f"/run/swarm-netlab/{name}.json").read_text("utf-8"))
    os.kill(state["owner"]["pid"], signal.SIGKILL)
    done = command("down", name)
    assert (done.returncode, done.stdout) == (0, f"ended: {name}\n")
    assert leftovers(name) == []


def test_down_leaves_labs_of_programs_alone(netlab: StartLab) -> None:
    lab = netlab(SMALL)
    done = command("down", lab.name)
    assert done.returncode == 2
    assert f"belongs to process {os.getpid()}" in done.stderr
    assert lab.run("a", ["true"]).returncode == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("up", "nowhere.toml"), "neither a file that can be read"),
        (("down", "nobody"), "no lab nobody is up"),
        (("exec", "--lab", "nobody", "a", "--", "true"), "no lab nobody is up"),
        (("dance",), "invalid choice"),
        (("up", "lan", "--name", "Not A Name"), "is not a name"),
        (("demo", "two-homes"), "without NAT"),
    ],
)
def test_misuse_is_one_line(netlab: StartLab, words: tuple[str, ...], complaint: str) -> None:
    done = command(*words)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def pytest_in(folder: Path, conftest: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    (folder / "conftest.py").write_text(conftest, encoding="utf-8")
    (folder / "test_it.py").write_text(
        "def test_needs_a_lab(netlab):\n    netlab('lan')\n\ndef test_does_not():\n    pass\n",
        encoding="utf-8",
    )
    around = {key: value for key, value in program_environment().items() if key != SWITCH}
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "swarm.testing.netlab.plugin",
        "-p",
        "no:cacheprovider",
        "-q",
    ]
    return subprocess.run(
        [*words, str(folder), f"--rootdir={folder}"],
        cwd=folder,
        env=around | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("conftest", "line"),
    [
        ("import os\nos.geteuid = lambda: 1000\n", "netlab needs root"),
        (
            (
                "import shutil\nfind = shutil.which\n"
                "shutil.which = lambda tool: None if tool == 'nft' else find(tool)\n"
            ),
            "netlab needs 'nft', which is not installed: apt-get install nftables",
        ),
    ],
)
def test_a_test_that_cannot_have_its_lab_fails_in_one_line(tmp_path: Path, conftest: str, line: str) -> None:
    done = pytest_in(tmp_path, conftest)
    assert done.returncode == 1
    assert "1 passed, 1 error" in done.stdout
    assert line in done.stdout
    assert "Traceback" not in done.stdout


def test_tests_are_left_out_only_when_asked_and_the_run_says_so(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, "", SWARM_NETLAB="off")
    assert done.returncode == 0
    assert "1 passed, 1 deselected" in done.stdout
    assert "LEFT OUT" in done.stdout
    wrong = pytest_in(tmp_path, "", SWARM_NETLAB="no")
    assert wrong.returncode != 0
    assert "set it to off, or not at all" in wrong.stderr


@pytest.mark.timeout(300)
def test_the_demo_trains_with_a_peer_on_each_host(netlab: StartLab) -> None:
    done = command_demo()
    assert done.returncode == 0, done.stderr
    table = {
        " ".join(line.split()[:2]): [int(cell.replace(",", "")) for cell in line.split()[-2:]]
        for line in done.stdout.splitlines()
        if line.startswith(("host ", "site "))
    }
    assert set(table) == {"host left1", "host left2", "host right1", "host right2", "site left", "site right"}
    for sent, received in table.values():
        assert sent + received > 1_000_000
    assert done.stdout.count(": stage ") == 4


def command_demo() -> Any:
    return subprocess.run(
        [sys.executable, "-m", "swarm.testing.netlab", "demo", "two-clusters", "--steps", "10"],
        env=program_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
