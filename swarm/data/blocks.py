"""Block stores: immutable bytes kept by their hash, on disk or in memory, within a limit (decision D11).

A block's name is the SHA-256 of its bytes, so a store can prove what it returns: a damaged block is removed
and counts as absent, and whoever needs it fetches it again. The methods block; callers on the event loop
run them in the loop's executor. ``has``, ``length``, ``pin`` and ``unpin`` only look at memory.
"""

import errno
import os
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

from swarm.data.ledger import Ledger
from swarm.errors import FailureError, LocalError
from swarm.identity.files import sync_folder
from swarm.ids import DIGEST_LENGTH, Digest, digest
from swarm.wire.limits import MAX_BLOCK_BYTES, MIB

Buffer = bytes | bytearray | memoryview

_NAME: Final = re.compile(rf"[a-z2-7]{{{DIGEST_LENGTH}}}\Z")
_UNFINISHED: Final = ".part"
_SHARD_LENGTH: Final = 2
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_DAMAGED: Final = (FileNotFoundError, IsADirectoryError)

MAX_MEMORY_BYTES: Final = 256 * MIB
"""Of blocks in memory while the disk takes none: samples and a stage that are in use, and little more."""


class Keeps(Protocol):
    """Where blocks can be put."""

    def put(self, data: Buffer) -> Digest:
        """Keep ``data`` and return its name. Raises FailureError."""


class Blocks(ABC):
    """What every block store can do; safe to call from several threads.

    ``limit`` is in bytes. Where a new block does not fit, the least recently used blocks that nobody has
    pinned make room for it.
    """

    def __init__(self, limit: int) -> None:
        self.on_trouble: Callable[[str], None] = lambda _: None
        """Hears in a sentence where blocks are not kept as they should be, on any thread."""
        self._ledger = Ledger(limit)
        self._lock = threading.Lock()
        """Guards the ledger; held for memory accesses only."""
        self._files = threading.Lock()
        """Guards what the ledger describes; held while bytes are read, put in place or erased."""

    @property
    def limit(self) -> int:
        """Most bytes that the store holds."""
        return self._ledger.limit

    @property
    def size(self) -> int:
        """Bytes of all blocks in the store."""
        return self._ledger.size

    def __len__(self) -> int:
        return len(self._ledger)

    def has(self, name: Digest) -> bool:
        """Whether the block is there, as far as is known without reading it."""
        return name in self._ledger

    def length(self, name: Digest) -> int | None:
        """Bytes of the block, or None where it is not there."""
        return self._ledger.length(name)

    def put(self, data: Buffer, *, expected: Digest | None = None, owner: str = "") -> Digest:
        """Keep ``data`` and return its name; where that is not the ``expected`` one, keep nothing.

        It is pinned for ``owner``, where one is given, before it is there. Raises FailureError where it does
        not fit beside what is pinned, or cannot be written.
        """
        size = memoryview(data).nbytes
        if size > MAX_BLOCK_BYTES:
            raise LocalError(f"a block of {size} bytes is over the limit of {MAX_BLOCK_BYTES}")
        name = digest(data)
        if expected is not None and name != expected:
            return name
        with self._lock:
            if owner:
                self._ledger.pin(owner, [name])
            known = name in self._ledger
            self._ledger.touch(name)
        with self._files:
            if known and self._stands(name, size):
                return name
            if known:
                self._drop(name)
            self._evict(lambda: self._ledger.victims(size))
            with self._lock:
                self._ledger.reserve(size)
        try:
            self._keep(name, data)
        finally:
            with self._lock:
                self._ledger.release(size)
        return name

    @contextmanager
    def holding(self) -> Iterator[Keeps]:
        """This store, where what is put stays until the context ends: pin by then what is to stay longer."""
        owner = f"held {uuid4().hex}"
        try:
            yield _Holding(self, owner)
        finally:
            self.unpin(owner)

    def get(self, name: Digest) -> bytes | None:
        """The block's bytes, proven by its name; None where it is not there, or was damaged: then it goes."""
        if name not in self._ledger:
            return None
        with self._files:
            data = self._read(name)
        if data is None or digest(data) != name:
            self._remove(name)
            return None
        with self._lock:
            self._ledger.touch(name)
        return data

    def discard(self, name: Digest) -> None:
        """Remove the block, unless somebody has pinned it."""
        with self._lock:
            if self._ledger.pinned(name):
                return
        self._remove(name)

    def pin(self, owner: str, names: Iterable[Digest]) -> None:
        """Never evict these blocks, there already or not, until ``owner`` unpins; adds to earlier pins."""
        with self._lock:
            self._ledger.pin(owner, names)

    def unpin(self, owner: str) -> None:
        """Let go of all that ``owner`` has pinned."""
        with self._lock:
            self._ledger.unpin(owner)

    @abstractmethod
    def sync(self, names: Iterable[Digest]) -> None:
        """Return once these blocks outlast a power cut, as far as the kind of store can.

        Raises FailureError where that cannot be had, or one of them is not there.
        """

    def digests(self) -> tuple[Digest, ...]:
        """The names of all blocks, the least recently used first."""
        with self._lock:
            return self._ledger.digests()

    def check(self) -> None:
        """Raise LocalError where the accounts do not add up."""
        with self._lock:
            self._ledger.check()

    def _evict(self, choose: Callable[[], list[Digest]]) -> bool:
        """Called with ``_files`` held."""
        with self._lock:
            victims = choose()
            for victim in victims:
                self._ledger.remove(victim)
        for victim in victims:
            self._erase(victim)
        return bool(victims)

    def _note(self, name: Digest, size: int) -> None:
        with self._lock:
            self._ledger.add(name, size)

    def _remove(self, name: Digest) -> None:
        with self._files:
            self._drop(name)

    def _drop(self, name: Digest) -> None:
        """Called with ``_files`` held."""
        with self._lock:
            if name not in self._ledger:
                return
            self._ledger.remove(name)
        self._erase(name)

    def _require(self, names: Iterable[Digest]) -> None:
        """Raise FailureError unless all of these blocks are there."""
        absent = sum(name not in self._ledger for name in names)
        if absent:
            raise FailureError(f"{absent} blocks that are to be kept are not there any more")

    @abstractmethod
    def _keep(self, name: Digest, data: Buffer) -> None:
        """Make the bytes durable as far as the kind of store can, and note them."""

    @abstractmethod
    def _stands(self, name: Digest, size: int) -> bool:
        """Whether there still is something of that size under a name, as far as is seen without reading."""

    @abstractmethod
    def _read(self, name: Digest) -> bytes | None:
        """The bytes under this name, unproven; None where there are none, or they cannot be read ever."""

    @abstractmethod
    def _erase(self, name: Digest) -> None:
        """Remove the bytes under this name."""


class _Holding:
    """See :meth:`Blocks.holding`."""

    def __init__(self, store: Blocks, owner: str) -> None:
        self._store = store
        self._owner = owner

    def put(self, data: Buffer) -> Digest:
        """Keep ``data``, pinned. Raises FailureError."""
        return self._store.put(data, owner=self._owner)


class MemoryBlockStore(Blocks):
    """Blocks in memory, for nodes that live shortly."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._blocks: dict[Digest, bytes] = {}

    def sync(self, names: Iterable[Digest]) -> None:
        """There is no disk."""
        self._require(names)

    def _keep(self, name: Digest, data: Buffer) -> None:
        with self._files:
            self._blocks[name] = bytes(data)
            self._note(name, len(self._blocks[name]))

    def _stands(self, name: Digest, size: int) -> bool:
        return len(self._blocks.get(name, b"")) == size

    def _read(self, name: Digest) -> bytes | None:
        return self._blocks.get(name)

    def _erase(self, name: Digest) -> None:
        self._blocks.pop(name, None)


class BlockStore(Blocks):
    """Blocks as files below ``folder``, a folder for each two first characters of their names.

    A block is written to a file of another name, flushed to the disk and renamed, so what has a block's name
    is whole even after a power cut, and after :meth:`sync` it is there. Order of use survives a restart as
    the files' times. The folder belongs to one process (a node's home is locked); making a store reads the
    folder, and raises FailureError where that cannot be done.

    A disk that takes nothing ends no work: where it is full, blocks that nobody has pinned make room on it,
    and what cannot be written after that is kept in memory, up to a limit, and told to ``on_trouble``, once
    until the disk takes blocks again.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        super().__init__(limit)
        self._in_memory: dict[Digest, bytes] = {}
        self._troubled = False
        self._folder = folder
        with self._explained():
            folder.mkdir(parents=True, exist_ok=True)
            for _, name, size in sorted(self._scan()):
                self._ledger.add(name, size)

    def _scan(self) -> Iterator[tuple[int, Digest, int]]:
        """Time of use, name and size of every block; what an interrupted write left is removed."""
        for path in self._folder.glob("*/*"):
            if path.suffix == _UNFINISHED:
                path.unlink(missing_ok=True)
            elif _NAME.match(path.name) and path == self._path(Digest(path.name)):
                facts = path.stat()
                yield facts.st_mtime_ns, Digest(path.name), facts.st_size

    def sync(self, names: Iterable[Digest]) -> None:
        """What the blocks hold is on the disk since they were put; now what they are called is, too."""
        names = tuple(names)
        self._require(names)
        for name in names:
            data = self._in_memory.get(name)
            if data is not None:
                with self._explained():
                    self._keep_on_disk(name, data)
        for folder in {self._path(name).parent for name in names}:
            sync_folder(folder)
        sync_folder(self._folder)
        sync_folder(self._folder.parent)

    def _path(self, name: Digest) -> Path:
        return self._folder / name[:_SHARD_LENGTH] / name

    def _keep(self, name: Digest, data: Buffer) -> None:
        while True:
            try:
                with self._explained():
                    self._keep_on_disk(name, data)
            except FailureError as error:
                if not (_is_full(error) and self._give_back(memoryview(data).nbytes)):
                    self._keep_in_memory(name, data, error)
                    return
            else:
                self._troubled = bool(self._in_memory)
                return

    def _keep_on_disk(self, name: Digest, data: Buffer) -> None:
        path = self._path(name)
        unfinished = path.with_name(f"{uuid4().hex}{_UNFINISHED}")
        path.parent.mkdir(exist_ok=True)
        try:
            with unfinished.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with self._files:
                unfinished.replace(path)
                self._in_memory.pop(name, None)
                self._note(name, memoryview(data).nbytes)
        finally:
            unfinished.unlink(missing_ok=True)

    def _keep_in_memory(self, name: Digest, data: Buffer, error: FailureError) -> None:
        size = memoryview(data).nbytes
        with self._files:
            excess = self._memory_used() + size - MAX_MEMORY_BYTES
            self._evict(lambda: self._ledger.loose(excess, self._in_memory.__contains__))
            if self._memory_used() + size > MAX_MEMORY_BYTES:
                raise error
            self._in_memory[name] = bytes(data)
            self._note(name, size)
        if not self._troubled:
            self._troubled = True
            self.on_trouble(f"{error}; until then blocks are kept in memory, and go with this program")

    def _memory_used(self) -> int:
        return sum(map(len, self._in_memory.values()))

    def _give_back(self, size: int) -> bool:
        """The disk is full before the store is: remove blocks of ``size`` bytes; whether there were any."""
        with self._files:
            return self._evict(lambda: self._ledger.loose(size, lambda name: name not in self._in_memory))

    def _stands(self, name: Digest, size: int) -> bool:
        if name in self._in_memory:
            return True
        try:
            return self._path(name).stat().st_size == size
        except OSError:
            return False

    def _read(self, name: Digest) -> bytes | None:
        if name in self._in_memory:
            return self._in_memory[name]
        path = self._path(name)
        try:
            data = path.read_bytes()
        except _DAMAGED:
            return None
        except OSError as error:
            if error.errno == errno.EIO:
                return None
            raise FailureError(f"cannot read blocks in {self._folder}: {error.strerror or error}") from error
        with suppress(OSError):  # the order of use after a restart is worth no failure
            os.utime(path)
        return data

    def _erase(self, name: Digest) -> None:
        if self._in_memory.pop(name, None) is None:
            with suppress(OSError):  # what stays on a disk that takes nothing is found at the next start
                self._path(name).unlink(missing_ok=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise FailureError(
                f"cannot keep blocks in {self._folder}: {error.strerror or error}: "
                f"free some space there, or give less with --disk or another folder with --home"
            ) from error


def _is_full(error: FailureError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _NO_SPACE
