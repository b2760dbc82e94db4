"""Stores and homes on real disks that have no room, or take nothing."""

from pathlib import Path

import pytest

from swarm.data.blocks import BlockStore
from swarm.errors import FailureError
from swarm.services.home import Home
from swarm.testing.disks import fill, make_read_only, small_disk
from swarm.wire.limits import MIB


def test_on_a_real_disk_without_room_and_on_one_that_takes_nothing_what_is_kept_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", MIB) as disk:
        store = BlockStore(disk / "blocks", 10 * MIB)
        names = [store.put(bytes([number]) * (MIB // 8)) for number in range(4)]
        fill(disk)
        store.pin("job", names[2:])
        names.append(store.put(bytes([4]) * (MIB // 8)))
        assert [store.has(name) for name in names] == [False, True, True, True, True]
        store.pin("job", names)
        names.append(store.put(bytes([5]) * (MIB // 8)))
        with pytest.raises(FailureError, match=rf"^cannot keep blocks in {disk}/blocks: No space left"):
            store.sync(names[1:])
        make_read_only(disk)
        names.append(store.put(bytes([6]) * 10))
        with pytest.raises(FailureError, match=r"Read-only file system: .*--home$"):
            store.sync(names[-1:])
        assert [store.get(name) is not None for name in names] == [False, *[True] * 6]
        store.check()


def test_a_home_on_a_disk_that_takes_nothing_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", MIB) as disk:
        (disk / "peer").mkdir()
        make_read_only(disk)
        wanted = rf"^the home {disk}/peer cannot be used: Read-only file system: give .* with --home$"
        with pytest.raises(FailureError, match=wanted), Home(disk, "peer").lock():
            pass
