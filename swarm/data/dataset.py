"""Datasets as blocks of whole samples, prepared once and the same everywhere (decision D11).

A dataset has fields (the model's inputs, in order) and samples. The items of a field lie back to back; a
block holds a whole number of items, so that a micro-batch needs few blocks and no item is split.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from swarm.data.blobs import block_length, put_blob
from swarm.data.blocks import Blocks, Keeps
from swarm.data.checks import check_dataset, item_bytes
from swarm.data.tensors import STORED, Array
from swarm.errors import MisuseError, RemoteProtocolError
from swarm.ids import Digest
from swarm.schedule.units import format_bytes
from swarm.wire.limits import MAX_BLOCK_BYTES, MAX_DIMENSIONS, MIB
from swarm.wire.records.manifest import Dataset, Field
from swarm.wire.tensors import ITEM_BYTES, DType

_FIELD_DTYPES: Final[dict[np.dtype[Any], DType]] = {
    stored: dtype for dtype, stored in STORED.items() if dtype != "bfloat16"
}
_CACHE_BYTES: Final = 64 * MIB
"""Blocks that a reader keeps at hand: epochs are shuffled, so a small dataset is wanted whole always."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetSize:
    """What a dataset costs to keep and send; ``str`` is for people."""

    samples: int
    bytes: int
    blocks: int

    def __str__(self) -> str:
        return f"{self.samples:,} samples, {format_bytes(self.bytes)} in {self.blocks:,} blocks"


def prepare(fields: Sequence[Array], store: Keeps) -> Dataset:
    """Keep samples as blocks: each field an array of all its items, (samples, ...).

    Raises MisuseError where the fields are no dataset, FailureError where they do not fit into the store.
    """
    if not fields:
        raise MisuseError("the dataset has no fields: each sample needs at least one array")
    if any(field.ndim == 0 for field in fields):
        raise MisuseError("a field of the dataset is a single number: give arrays of one item a sample")
    counts = {len(field) for field in fields}
    if len(counts) > 1:
        shown = ", ".join(str(len(field)) for field in fields)
        raise MisuseError(f"the dataset's fields have {shown} items: all need the same number")
    if counts == {0}:
        raise MisuseError("the dataset has no samples")
    kept = tuple(_put_field(number, field, store) for number, field in enumerate(fields))
    return Dataset(samples=len(fields[0]), fields=kept)


def describe(dataset: Dataset) -> DatasetSize:
    """The size facts of a dataset, each block counted once."""
    names = {name for field in dataset.fields for name in field.blob.blocks}
    return DatasetSize(
        samples=dataset.samples,
        bytes=sum(field.blob.size for field in dataset.fields),
        blocks=len(names),
    )


class Reader:
    """Reads samples out of blocks; keeps up to 64 MiB of them at hand. Safe to call from several threads.

    Raises RemoteProtocolError when made with a record that is no dataset.
    """

    def __init__(self, dataset: Dataset, store: Blocks) -> None:
        check_dataset(dataset)
        self._dataset = dataset
        self._store = store
        self._cache: OrderedDict[Digest, bytes] = OrderedDict()
        self._cached = 0
        self._lock = threading.Lock()

    @property
    def dataset(self) -> Dataset:
        """The record that this reads."""
        return self._dataset

    def blocks_for(self, fields: Iterable[int], indices: NDArray[np.int64]) -> list[Digest]:
        """The blocks that hold these samples' items of these fields, each once."""
        found: dict[Digest, None] = {}
        for number in fields:
            field = self._dataset.fields[number]
            for block in np.unique(indices // field.per_block).tolist():
                found[Digest(field.blob.blocks[block])] = None
        return list(found)

    def read(self, field: int, indices: NDArray[np.int64]) -> Array | None:
        """The items (len(indices), ...) of one field, or None where a block is missing from the store.

        Raises RemoteProtocolError where a block does not have the length that the dataset calls for.
        """
        facts = self._dataset.fields[field]
        item = item_bytes(facts)
        rows = np.empty((len(indices), item), dtype=np.uint8)
        blocks = indices // facts.per_block
        for number in np.unique(blocks).tolist():
            data = self._block(Digest(facts.blob.blocks[number]))
            if data is None:
                return None
            items = min(facts.per_block, self._dataset.samples - number * facts.per_block)
            if len(data) != items * item:
                raise RemoteProtocolError("a block of a dataset has another length than its samples call for")
            inside = np.frombuffer(data, dtype=np.uint8).reshape(items, item)
            places = np.flatnonzero(blocks == number)
            rows[places] = inside[indices[places] - number * facts.per_block]
        if facts.dtype == "bool" and np.any(rows > 1):
            raise RemoteProtocolError("a dataset has truth values that are neither 0 nor 1")
        return rows.view(STORED[facts.dtype]).reshape(len(indices), *facts.shape)

    def _block(self, name: Digest) -> bytes | None:
        with self._lock:
            data = self._cache.get(name)
            if data is not None:
                self._cache.move_to_end(name)
                return data
        data = self._store.get(name)
        if data is not None:
            self._remember(name, data)
        return data

    def _remember(self, name: Digest, data: bytes) -> None:
        with self._lock:
            if name not in self._cache:
                self._cache[name] = data
                self._cached += len(data)
            while self._cached > _CACHE_BYTES:
                _, dropped = self._cache.popitem(last=False)
                self._cached -= len(dropped)


def _put_field(number: int, field: Array, store: Keeps) -> Field:
    dtype = _FIELD_DTYPES.get(field.dtype.newbyteorder("<"))
    if dtype is None:
        known = ", ".join(_FIELD_DTYPES.values())
        raise MisuseError(
            f"field {number} of the dataset has the type {field.dtype}: convert it to one of {known}"
        )
    item = math.prod(field.shape[1:]) * ITEM_BYTES[dtype]
    if not 0 < item <= MAX_BLOCK_BYTES:
        raise MisuseError(
            f"one item of field {number} of the dataset has {item:,} bytes: "
            f"it needs at least one, and at most {MAX_BLOCK_BYTES:,}"
        )
    if field.ndim > MAX_DIMENSIONS:
        raise MisuseError(
            f"an item of field {number} of the dataset has {field.ndim - 1} dimensions: "
            f"it may have {MAX_DIMENSIONS - 1}"
        )
    elements = np.asarray(field, dtype=STORED[dtype], order="C")
    blob = put_blob(store, elements.reshape(-1).view(np.uint8).data, unit=item)
    return Field(
        dtype=dtype, shape=field.shape[1:], per_block=block_length(blob.size, item) // item, blob=blob
    )
