import errno
import os
import stat
from pathlib import Path

import pytest

from swarm.errors import FailureError
from swarm.identity import files
from swarm.identity.files import make_private_folder, read_state, write_private


def test_write_replaces_the_whole_file_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"a much longer old content")
    path.chmod(0o644)
    write_private(path, b"new")
    assert path.read_bytes() == b"new"
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600


def test_failed_write_keeps_the_old_file_and_leaves_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "state"
    write_private(path, b"old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FailureError, match="No space left on device"):
        write_private(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_folder_that_cannot_be_synced_does_not_fail_the_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some network shares refuse it."""
    real = os.fsync

    def files_only(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", files_only)
    write_private(tmp_path / "state", b"new")
    assert (tmp_path / "state").read_bytes() == b"new"


def test_write_into_a_missing_folder_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(FailureError, match="state"):
        write_private(tmp_path / "missing" / "state", b"")


def test_read_refuses_what_is_missing_or_absurdly_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FailureError, match="cannot read"):
        read_state(tmp_path / "state")
    monkeypatch.setattr(files, "MAX_STATE_FILE_BYTES", 3)
    (tmp_path / "state").write_bytes(b"abc")
    assert read_state(tmp_path / "state") == b"abc"
    (tmp_path / "state").write_bytes(b"abcd")
    with pytest.raises(FailureError, match="not a file of this program"):
        read_state(tmp_path / "state")


def test_private_folder_is_made_with_its_parents_and_may_exist(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    make_private_folder(folder)
    make_private_folder(folder)
    assert folder.is_dir()
    if os.name == "posix":
        assert folder.stat().st_mode & 0o077 == 0
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FailureError, match="cannot make the folder"):
        make_private_folder(tmp_path / "file" / "below")
