import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.data import blocks
from swarm.data.blocks import Blocks, BlockStore, MemoryBlockStore
from swarm.errors import FailureError, LocalError
from swarm.ids import Digest, digest
from swarm.wire.limits import MAX_BLOCK_BYTES

MakeStore = Callable[[int], Blocks]


def block(number: int, size: int = 100) -> bytes:
    return number.to_bytes(4, "big") * (size // 4)


def test_a_block_comes_back_under_the_hash_of_its_bytes(make_store: MakeStore):
    store = make_store(1000)
    name = store.put(b"hello")
    assert name == digest(b"hello")
    assert (store.get(name), store.has(name), store.length(name)) == (b"hello", True, 5)
    assert (store.size, len(store)) == (5, 1)


def test_absent_blocks_are_none_and_discarding_them_does_nothing(make_store: MakeStore):
    store = make_store(1000)
    name = digest(b"never")
    store.discard(name)
    assert (store.get(name), store.has(name), store.length(name)) == (None, False, None)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_can_be_put(make_store: MakeStore, kind: type):
    store = make_store(1000)
    assert store.get(store.put(kind(b"data"))) == b"data"


def test_putting_twice_keeps_one(make_store: MakeStore):
    store = make_store(1000)
    store.put(b"same")
    store.put(b"same")
    assert (store.size, len(store)) == (4, 1)


def test_bytes_with_another_hash_than_expected_are_not_kept(make_store: MakeStore):
    store = make_store(1000)
    wanted = digest(b"wanted")
    assert store.put(b"other", expected=wanted) == digest(b"other")
    assert (store.has(wanted), len(store)) == (False, 0)
    assert store.put(b"wanted", expected=wanted) == wanted
    assert store.has(wanted)


def test_the_limit_holds_and_the_least_recently_used_block_makes_room(make_store: MakeStore):
    store = make_store(300)
    names = [store.put(block(number)) for number in range(3)]
    store.get(names[0])
    names.append(store.put(block(3)))
    assert [store.has(name) for name in names] == [True, False, True, True]
    assert store.size == 300
    assert store.get(names[1]) is None


def test_pinned_blocks_stay_and_what_does_not_fit_beside_them_is_refused(make_store: MakeStore):
    store = make_store(300)
    names = [store.put(block(number)) for number in range(3)]
    store.pin("job", names[:2])
    store.put(block(3))
    assert [store.has(name) for name in names] == [True, True, False]
    with pytest.raises(FailureError, match=r"give it more with --disk$"):
        store.put(block(4, 200))
    assert [store.has(name) for name in names[:2]] == [True, True]
    store.unpin("job")
    store.put(block(4, 200))
    assert store.size == 300
    store.check()


def test_what_is_held_is_not_evicted_by_what_is_put_after_it(make_store: MakeStore):
    store = make_store(300)
    before = [store.put(block(number)) for number in range(2)]
    with store.holding() as held:
        names = [held.put(block(number)) for number in range(3, 6)]
        assert [store.has(name) for name in (*before, *names)] == [False, False, True, True, True]
        with pytest.raises(FailureError, match="the block store is full"):
            held.put(block(6))
        store.pin("job", names[:1])
    store.put(block(7, 200))
    assert [store.has(name) for name in names] == [True, False, False]
    store.check()


def test_discard_removes_what_nobody_pinned(make_store: MakeStore):
    store = make_store(300)
    kept, gone = store.put(block(1)), store.put(block(2))
    store.pin("job", [kept])
    store.discard(kept)
    store.discard(gone)
    assert (store.has(kept), store.has(gone), store.size) == (True, False, 100)


def test_a_block_over_the_limit_of_a_block_is_a_bug(make_store: MakeStore):
    with pytest.raises(LocalError):
        make_store(1 << 40).put(bytes(MAX_BLOCK_BYTES + 1))


def test_an_empty_block_is_a_block(make_store: MakeStore):
    store = make_store(10)
    assert store.get(store.put(b"")) == b""


def test_threads_share_a_store_within_its_limit(make_store: MakeStore):
    store = make_store(1000)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for number in range(40):
                data = block(number % 15 + seed % 2)
                name = store.put(data)
                assert store.get(name) in (data, None)
                if number % 7 == 0:
                    store.discard(name)
        except BaseException as error:  # noqa: BLE001 - carried to the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    store.check()
    assert store.size <= 1000
    assert store.size == sum(len(store.get(name) or b"") for name in store.digests())


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("damage", [b"", b"hellO", b"hello and more"])
def test_a_damaged_block_is_removed_and_can_be_put_again(tmp_path: Path, damage: bytes):
    store = BlockStore(tmp_path, 1000)
    name = store.put(b"hello")
    (path,) = files(tmp_path)
    path.write_bytes(damage)
    assert store.get(name) is None
    assert (store.has(name), store.size, files(tmp_path)) == (False, 0, [])
    assert store.get(store.put(b"hello")) == b"hello"


def test_a_block_whose_file_is_gone_counts_as_absent(tmp_path: Path):
    store = BlockStore(tmp_path, 1000)
    name = store.put(b"hello")
    files(tmp_path)[0].unlink()
    assert (store.get(name), store.has(name), store.size) == (None, False, 0)


def test_blocks_and_their_order_of_use_survive_a_restart(tmp_path: Path):
    store = BlockStore(tmp_path, 300)
    names = [store.put(block(number)) for number in range(3)]
    for moment, name in zip((30, 10, 20), names, strict=True):
        os.utime(tmp_path / name[:2] / name, (moment, moment))
    again = BlockStore(tmp_path, 300)
    assert again.digests() == (names[1], names[2], names[0])
    again.put(block(3))
    assert [again.has(name) for name in names] == [True, False, True]


def test_use_moves_a_file_to_the_end_of_the_order(tmp_path: Path):
    store = BlockStore(tmp_path, 300)
    names = [store.put(block(number)) for number in range(2)]
    for name in names:
        os.utime(tmp_path / name[:2] / name, (10, 10))
    store.get(names[0])
    assert BlockStore(tmp_path, 300).digests() == (names[1], names[0])


def test_what_an_interrupted_write_left_is_removed_and_strangers_are_left_alone(tmp_path: Path):
    name = BlockStore(tmp_path, 300).put(b"hello")
    unfinished, stranger = tmp_path / name[:2] / "abc.part", tmp_path / name[:2] / "notes.txt"
    misplaced = tmp_path / "zz" / name
    misplaced.parent.mkdir()
    for path in (unfinished, stranger, misplaced):
        path.write_bytes(b"x")
    store = BlockStore(tmp_path, 300)
    assert store.digests() == (name,)
    assert not unfinished.exists()
    assert stranger.exists()


def without_room(folder: Path, monkeypatch: pytest.MonkeyPatch, *, room: int) -> None:
    """A disk of ``room`` bytes."""
    real = os.fsync

    def fsync(descriptor: int) -> None:
        if sum(path.stat().st_size for path in files(folder)) > room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)


def test_where_the_disk_is_full_blocks_stay_in_memory_are_told_of_once_and_written_when_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store, told = BlockStore(tmp_path, 300), []
    store.on_trouble = told.append
    without_room(tmp_path, monkeypatch, room=0)
    names = [store.put(block(number)) for number in range(2)]
    assert told == [
        (
            f"cannot keep blocks in {tmp_path}: {os.strerror(errno.ENOSPC)}: "
            "free some space there, or give less with --disk or another folder with --home; "
            "until then blocks are kept in memory, and go with this program"
        )
    ]
    assert files(tmp_path) == []
    assert [store.get(name) for name in names] == [block(0), block(1)]
    with pytest.raises(FailureError, match="free some space there"):
        store.sync(names)
    store.check()
    monkeypatch.undo()
    store.sync(names)
    assert BlockStore(tmp_path, 300).digests() == store.digests()
    store.put(block(2, 200))
    assert store.size == 300
    store.check()


def test_blocks_in_memory_are_bounded_and_those_that_nobody_needs_make_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = BlockStore(tmp_path, 1000)
    without_room(tmp_path, monkeypatch, room=0)
    monkeypatch.setattr(blocks, "MAX_MEMORY_BYTES", 300)
    names = [store.put(block(number)) for number in range(4)]
    assert [store.has(name) for name in names] == [False, True, True, True]
    store.pin("job", names[1:])
    with pytest.raises(FailureError, match="free some space there"):
        store.put(block(5))
    assert store.size == 300
    store.check()


def test_where_the_disk_is_full_before_the_store_is_what_nobody_needs_makes_room_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = BlockStore(tmp_path, 1000)
    without_room(tmp_path, monkeypatch, room=300)
    names = [store.put(block(number)) for number in range(3)]
    store.pin("job", names[:1])
    names.append(store.put(block(3, 200)))
    assert [store.has(name) for name in names] == [True, False, False, True]
    assert (store.size, len(files(tmp_path))) == (300, 2)
    store.check()


def test_what_was_deleted_or_cut_short_behind_the_stores_back_is_written_again(tmp_path: Path):
    store = BlockStore(tmp_path, 300)
    name = store.put(b"hello")
    for damage in (None, b"he"):
        (path,) = files(tmp_path)
        path.unlink() if damage is None else path.write_bytes(damage)
        assert store.put(b"hello") == name
        assert store.get(name) == b"hello"
    assert store.size == 5
    store.check()


@pytest.mark.parametrize(("number", "stays"), [(errno.EMFILE, True), (errno.EIO, False)])
def test_only_what_the_disk_has_lost_is_thrown_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, stays: bool
):
    store = BlockStore(tmp_path, 300)
    name = store.put(b"hello")

    def fail(_: Path) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as failing:
        failing.setattr(Path, "read_bytes", fail)
        if stays:
            with pytest.raises(FailureError, match=f"cannot read blocks in {tmp_path}: "):
                store.get(name)
        else:
            assert store.get(name) is None
    assert store.get(name) == (b"hello" if stays else None)


def test_blocks_that_cannot_be_erased_count_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store = BlockStore(tmp_path, 300)
    damaged = store.put(b"hello")
    files(tmp_path)[0].write_bytes(b"hellO")
    store.put(block(1, 200))

    def fail(_: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "unlink", fail)
    assert (store.get(damaged), store.has(damaged), store.size) == (None, False, 200)
    store.check()


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(FailureError, match="cannot keep blocks in"):
        BlockStore(tmp_path / "file", 300)


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "get", "pin", "unpin", "discard"]), st.integers(0, 9)), max_size=60
    )
)
def test_any_history_keeps_the_limit_the_pins_and_the_accounts(history: list[tuple[str, int]]):
    store = MemoryBlockStore(100)
    pinned: set[Digest] = set()
    for action, number in history:
        data = bytes([number]) * (10 + 3 * number)
        name = digest(data)
        match action:
            case "put":
                before = {other for other in store.digests() if other in pinned}
                try:
                    store.put(data)
                except FailureError:
                    assert sum(store.length(other) or 0 for other in before) + len(data) > 100
                assert before <= set(store.digests())
            case "get":
                assert store.get(name) == (data if store.has(name) else None)
            case "pin":
                store.pin("job", [name])
                pinned.add(name)
            case "unpin":
                store.unpin("job")
                pinned.clear()
            case "discard":
                was = store.has(name)
                store.discard(name)
                assert store.has(name) == (was and name in pinned)
        store.check()
        assert store.size <= 100


def test_blocks_are_findable_after_a_power_cut_once_they_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = BlockStore(tmp_path / "home" / "blocks", 10_000)
    names = [store.put(block(number)) for number in range(3)]
    real, synced = os.fsync, set()

    def fsync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    store.sync(names[:2])
    above = [tmp_path / "home", tmp_path / "home" / "blocks"]
    shards = [tmp_path / "home" / "blocks" / name[:2] for name in names[:2]]
    assert synced == {folder.stat().st_ino for folder in (*above, *shards)}


def test_a_block_that_another_thread_has_just_put_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Both saw that it was absent; the second one must not take away what the first has told of."""
    store, erased = BlockStore(tmp_path, 1000), []

    class Late:
        """The lock of the files, which the other one has first."""

        lock = store._files

        def __enter__(self) -> None:
            store._files = self.lock
            store.put(b"zeros", owner="first")
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    monkeypatch.setattr(store, "_files", Late())
    monkeypatch.setattr(store, "_erase", erased.append)
    name = store.put(b"zeros", owner="second")
    assert erased == []
    assert store.get(name) == b"zeros"
    store.check()


def test_what_is_not_there_cannot_be_made_to_last(make_store: MakeStore):
    store = make_store(1000)
    name = store.put(b"hello")
    with pytest.raises(FailureError, match=r"^1 blocks that are to be kept are not there any more$"):
        store.sync([name, digest(b"never")])
