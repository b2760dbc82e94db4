"""What a coordinator keeps of its jobs: what is found again, whatever became of the files."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from swarm.data.blobs import put_blob
from swarm.data.blocks import BlockStore
from swarm.errors import FailureError
from swarm.ids import Digest, JobId, PeerId, Step
from swarm.log import get_log
from swarm.protocol.coordination_events import Begin
from swarm.protocol.lines import Line
from swarm.protocol.terms import JobTerms
from swarm.services.blocks import BlockExchange
from swarm.services.job import Job
from swarm.services.job_blocks import JobBlocks
from swarm.services.line_files import BEFORE, LINES_FOLDER, NEWEST, forget_records
from swarm.services.lines import LineBook
from swarm.services.story import Story
from swarm.services.withholding import Withholding
from swarm.testing.clock import ManualClock
from swarm.testing.manifests import sample_manifest
from swarm.wire.messages.jobs import JobProgress, JobValidation
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.state import StateTensor

AGE = 1000
CLOCK = ManualClock()
MANIFEST = sample_manifest(created=CLOCK.wall() - AGE)
JOB = Job(id=JobId("j" * 52), envelope=b"", manifest=MANIFEST, author=PeerId("a" * 32))
TERMS = JobTerms(job=JOB.id, steps=10, evaluates=True, validate_every=2, patience=0.0, bytes=0)


class Home:
    """A home's files, and a node that starts in it again and again, with nobody to fetch blocks from."""

    def __init__(self, folder: Path, tasks: asyncio.TaskGroup) -> None:
        self.folder, self.tasks = folder, tasks
        self.store = BlockStore(folder / "blocks", 1_000_000)

    def start(self) -> LineBook:
        """The lines as a program that starts now sees them."""
        self.store = BlockStore(self.folder / "blocks", 1_000_000)
        exchange = BlockExchange(self.store, clock=CLOCK, tasks=self.tasks)
        self.story = Story(CLOCK, get_log("test"))
        context: Any = SimpleNamespace(links={}, story=self.story, clock=CLOCK)
        return LineBook(self.folder, context, JobBlocks(context, exchange, Withholding(list)))

    def line(self, step: int) -> Line:
        blob = put_blob(self.store, bytes([step] * 4))
        tensor = TensorBlob(name="b", dtype="float32", shape=(1,), blob=blob)
        return Line(step=Step(step), tensors=(StateTensor("value", tensor),))

    def file(self, suffix: str) -> Path:
        return self.folder / LINES_FOLDER / f"{JOB.id}{suffix}"

    def damage(self, name: str) -> None:
        path = self.folder / "blocks" / name[:2] / name
        path.write_bytes(path.read_bytes() + b"?")

    @property
    def told(self) -> list[str]:
        return [event.sentence for event in self.story.events()]


@pytest.fixture
async def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Home]:
    monkeypatch.setitem(BlockExchange.fetch_blobs.__kwdefaults__, "patience", 0.0)
    async with asyncio.TaskGroup() as tasks:
        yield Home(tmp_path, tasks)


def records(steps: int) -> tuple[JobProgress, ...]:
    """Those of so many steps, and of the validations between them."""
    found: list[JobProgress] = []
    for step in range(steps):
        fields: dict[str, Any] = {"job": JOB.id, "incarnation": 1, "step": step, "loss": 1 / (step + 1)}
        fields |= {"clip": 1.0, "norm": 1.0, "cause": ""}
        if step and step % 2 == 0:
            found.append(JobValidation(**fields, outcome="evaluated", metric=0.5))
        found.append(JobProgress(**fields, outcome="applied"))
    return tuple(found)


async def two_lines(home: Home) -> None:
    """After steps 2 and 4, both under plan 3."""
    book = home.start()
    assert not book.has(JOB)
    await book.keep_generation(JOB, 3)
    for step in (2, 4):
        await book.keep(JOB, home.line(step), records(step))


async def test_a_program_that_starts_again_finds_its_newest_line_and_what_was_told_then(
    home: Home,
) -> None:
    await two_lines(home)
    book = home.start()
    assert book.has(JOB)
    assert await book.resume(JOB, TERMS) == Begin(line=home.line(4), generation=3, records=records(4))
    await book.keep_generation(JOB, 4)
    assert (await home.start().resume(JOB, TERMS)).generation == 4
    assert home.told == []


async def test_before_there_is_a_line_only_the_number_of_the_plan_counts(home: Home) -> None:
    await home.start().keep_generation(JOB, 2)
    assert await home.start().resume(JOB, TERMS) == Begin(generation=2)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("harm", [cut, flip, empty, Path.unlink])
async def test_where_the_newest_record_is_damaged_the_one_before_counts_under_a_number_nobody_had(
    home: Home, harm: Callable[[Path], None]
) -> None:
    await two_lines(home)
    harm(home.file(NEWEST))
    begin = await home.start().resume(JOB, TERMS)
    assert begin == Begin(line=home.line(2), generation=AGE, records=records(2))
    [told] = home.told
    assert told.startswith(f"of job {JOB.id[:8]} its newest line is lost: ")
    assert str(home.file(NEWEST)) in told


async def test_where_both_records_are_damaged_the_job_begins_again(home: Home) -> None:
    await two_lines(home)
    for suffix in (NEWEST, BEFORE):
        cut(home.file(suffix))
    assert await home.start().resume(JOB, TERMS) == Begin(generation=AGE)
    assert len(home.told) == 1


async def test_a_line_whose_blocks_nobody_has_any_more_gives_way_to_the_one_before(home: Home) -> None:
    await two_lines(home)
    [name] = home.line(4).tensors[0].tensor.blob.blocks
    home.damage(name)
    begin = await home.start().resume(JOB, TERMS)
    assert begin == Begin(line=home.line(2), generation=3, records=records(2))
    [told] = home.told
    assert told.startswith(f"job {JOB.id[:8]} cannot go on from step 4: block {name[:8]} cannot be fetched")


async def test_no_record_names_blocks_that_are_not_on_the_disk(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = home.start()
    await book.keep(JOB, home.line(2), records(2))
    before = home.file(NEWEST).read_bytes()
    asked: list[list[Digest]] = []

    def failing(_: BlockStore, names: list[Digest]) -> None:
        asked.append(names)
        raise FailureError("the disk is gone")

    monkeypatch.setattr(BlockStore, "sync", failing)
    with pytest.raises(FailureError, match="the disk is gone"):
        await book.keep(JOB, home.line(4), records(4))
    assert home.file(NEWEST).read_bytes() == before
    assert set(asked[0]) >= set(home.line(4).tensors[0].tensor.blob.blocks)
    assert len(asked[0]) == 3, "the tensor, the list of tensors, and the records"


async def test_a_new_plan_takes_no_lines_place(home: Home) -> None:
    await two_lines(home)
    book = home.start()
    await book.resume(JOB, TERMS)
    for generation in (5, 6):
        await book.keep_generation(JOB, generation)
    cut(home.file(NEWEST))
    assert (await home.start().resume(JOB, TERMS)).line == home.line(2)


async def test_lines_that_cannot_be_kept_take_nothing_from_the_one_that_counts(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    book = home.start()
    await book.keep(JOB, home.line(2), records(2))

    def failing(_: BlockStore, names: list[Digest]) -> None:
        raise FailureError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(BlockStore, "sync", failing)
        for step in (4, 6, 8):
            with pytest.raises(FailureError, match="the disk is full"):
                await book.keep(JOB, home.line(step), records(step))
    home.store.put(bytes(900_000))
    home.store.put(bytes(900_001))  # takes the place of all that nobody has pinned
    begin = await home.start().resume(JOB, TERMS)
    assert (begin.line.step, begin.records) == (2, records(2))
    assert home.told == []


async def test_of_a_job_that_ends_meanwhile_nothing_is_kept(home: Home) -> None:
    book, ending = home.start(), replace(JOB, manifest=MANIFEST)
    await book.keep(ending, home.line(2), records(2))
    keeping = home.tasks.create_task(book.keep(ending, home.line(4), records(4)))
    await asyncio.sleep(0)
    ending.state = "cancelled"
    forget_records(home.folder, ending.id)
    await keeping
    assert not list((home.folder / LINES_FOLDER).iterdir())


async def test_a_plan_is_issued_also_where_its_number_cannot_be_written(home: Home) -> None:
    book = home.start()
    (home.folder / LINES_FOLDER).write_text("no folder")
    await book.keep_generation(JOB, 1)
    [told] = home.told
    assert told.startswith(f"job {JOB.id[:8]} could not be taken up again after a restart: cannot ")


class Disk:
    """What of the files below ``root`` a power cut leaves: what was synced, under names that were synced."""

    def __init__(self, root: Path) -> None:
        self._root = root.stat().st_ino
        self._files: dict[int, bytes] = {}
        self._folders: dict[int, dict[str, int]] = {self._root: {}}
        self._sync = os.fsync
        self.cuts: list[tuple[dict[int, bytes], dict[int, dict[str, int]]]] = []
        """What there was after each sync."""

    def fsync(self, descriptor: int) -> None:
        """As ``os.fsync``, and remember what it has made last."""
        self._sync(descriptor)
        facts = os.fstat(descriptor)
        self._files.pop(facts.st_ino, None)  # the number of one that is gone may be given to another kind
        self._folders.pop(facts.st_ino, None)
        if stat.S_ISDIR(facts.st_mode):
            with os.scandir(descriptor) as entries:
                self._folders[facts.st_ino] = {entry.name: entry.inode() for entry in entries}
        else:
            self._files[facts.st_ino] = Path(f"/proc/self/fd/{descriptor}").read_bytes()
        self.cuts.append((dict(self._files), dict(self._folders)))

    def left(self, cut: int, folder: Path) -> Path:
        """Write what the cut after sync ``cut`` leaves into ``folder``."""
        files, folders = self.cuts[cut]

        def write(inode: int, path: Path) -> None:
            path.mkdir()
            for name, inner in folders[inode].items():
                if inner in files:
                    (path / name).write_bytes(files[inner])
                elif inner in folders:
                    write(inner, path / name)

        write(self._root, folder)
        return folder


async def test_whenever_the_power_is_cut_the_job_goes_on_from_the_last_line_that_was_kept(
    home: Home, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(home.folder)
    book, kept = home.start(), []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", disk.fsync)
        await book.keep_generation(JOB, 3)
        for step in (2, 4):
            kept.append(len(disk.cuts) - 1)
            await book.keep(JOB, home.line(step), records(step))
        kept.append(len(disk.cuts) - 1)
    found = []
    for cut in range(len(disk.cuts)):
        after = Home(disk.left(cut, tmp_path_factory.mktemp("cut") / "home"), home.tasks)
        again = after.start()
        begin = await again.resume(JOB, TERMS) if again.has(JOB) else Begin()
        assert begin.records == records(begin.line.step)
        assert after.told == []
        found.append(int(begin.line.step))
    assert found == sorted(found)
    assert [found[cut] for cut in kept] == [0, 2, 4]
