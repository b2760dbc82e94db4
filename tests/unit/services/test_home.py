"""Homes: one process each, found by others, freed however the owner ends."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from swarm.errors import FailureError, MisuseError
from swarm.services.home import Home, Running, authority_folder, node_names, running_nodes

HOLD = """
import sys
from pathlib import Path
from swarm.services.home import Home
with Home(Path(sys.argv[1]), sys.argv[2]).lock() as lock:
    lock.announce("http://127.0.0.1:9/", role="peer")
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(base: Path, name: str) -> subprocess.Popen[str]:
    """A real process that owns the home until its standard input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(base), name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.communicate("", timeout=30)


def test_second_process_is_told_who_has_the_home(tmp_path: Path) -> None:
    owner = hold(tmp_path, "peer")
    try:
        with pytest.raises(FailureError) as refusal, Home(tmp_path, "peer").lock():
            pass
        assert str(refusal.value) == f"home in use by process {owner.pid}: give this one --name"
    finally:
        end(owner)


def test_another_name_in_the_same_base_is_free(tmp_path: Path) -> None:
    owner = hold(tmp_path, "peer")
    try:
        with Home(tmp_path, "peer2").lock():
            assert [running.name for running in running_nodes(tmp_path)] == ["peer", "peer2"]
    finally:
        end(owner)


def test_an_orderly_end_frees_the_home_and_leaves_no_trace_of_the_run(tmp_path: Path) -> None:
    end(hold(tmp_path, "peer"))
    home = Home(tmp_path, "peer")
    assert home.running() is None
    assert not (home.folder / "running.json").exists()
    with home.lock():
        assert home.running() is not None


def test_a_killed_owner_is_neither_found_nor_in_the_way(tmp_path: Path) -> None:
    owner = hold(tmp_path, "peer")
    home = Home(tmp_path, "peer")
    with pytest.raises(FailureError, match="home in use"):
        home.require_free()
    owner.kill()
    os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has asked after it
    assert (home.folder / "running.json").exists()
    assert home.running() is None
    home.require_free()
    end(owner)
    assert home.running() is None
    with home.lock():
        found = home.running()
        assert found is not None
        assert found.pid == os.getpid()


def test_a_stopped_owner_still_owns(tmp_path: Path) -> None:
    owner = hold(tmp_path, "peer")
    try:
        psutil.Process(owner.pid).suspend()
        with pytest.raises(FailureError, match="home in use"), Home(tmp_path, "peer").lock():
            pass
    finally:
        psutil.Process(owner.pid).resume()
        end(owner)


def test_a_reused_process_id_is_not_taken_for_the_owner(tmp_path: Path) -> None:
    home = Home(tmp_path, "peer")
    home.folder.mkdir()
    me = psutil.Process()
    said = Running(
        name="peer",
        pid=me.pid,
        started=me.create_time() - 100,
        role="peer",
        status_url="http://127.0.0.1:1/",
        control="x",
    )
    (home.folder / "running.json").write_bytes(msgspec.json.encode(said))
    assert home.running() is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff\xfe"])
def test_a_damaged_note_is_no_process(tmp_path: Path, content: bytes) -> None:
    home = Home(tmp_path, "peer")
    home.folder.mkdir()
    (home.folder / "running.json").write_bytes(content)
    assert home.running() is None
    with home.lock():
        assert home.running() is not None


def test_secrets_are_for_the_owner_alone(tmp_path: Path) -> None:
    home = Home(tmp_path, "peer")
    with home.lock() as lock:
        found = home.running()
        assert found is not None
        assert found.control == lock.control
        token = home.status_token()
        assert home.status_token() == token
        if os.name != "nt":
            for name in ("running.json", "status-token", "lock"):
                assert stat.S_IMODE((home.folder / name).stat().st_mode) == 0o600


def test_each_run_has_its_own_control_token(tmp_path: Path) -> None:
    home = Home(tmp_path, "peer")
    with home.lock() as first:
        pass
    with home.lock() as second:
        assert first.control != second.control


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a\\b", "-x", "con", "NUL.txt", "com1", "a b", "ä", "x.", "y" * 64, "a\n"]
)
def test_a_name_that_is_no_folder_everywhere_is_misuse(tmp_path: Path, name: str) -> None:
    with pytest.raises(MisuseError, match="cannot be the name of a home"):
        Home(tmp_path, name)
    with pytest.raises(MisuseError, match="cannot be the name of a swarm"):
        authority_folder(tmp_path, name)


@pytest.mark.parametrize("name", ["authorities", "Authorities"])
def test_the_folder_of_authorities_is_no_home(tmp_path: Path, name: str) -> None:
    with pytest.raises(MisuseError, match="is taken"):
        Home(tmp_path, name)


def test_authorities_are_not_listed_as_homes(tmp_path: Path) -> None:
    authority_folder(tmp_path, "lab").mkdir(parents=True)
    Home(tmp_path, "peer").folder.mkdir()
    (tmp_path / "a file").write_text("x")
    assert node_names(tmp_path) == ["peer"]
    assert node_names(tmp_path / "missing") == []


def test_a_base_that_is_a_file_is_a_failure_in_one_line(tmp_path: Path) -> None:
    base = tmp_path / "file"
    base.write_text("x")
    with pytest.raises(FailureError) as failure, Home(base, "peer").lock():
        pass
    assert "\n" not in str(failure.value)
