"""Whatever bytes and records come from elsewhere, the readers of ``swarm.data`` return, or refuse them."""

import numpy as np
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.data.blobs import get_blob, get_graph, put_blob
from swarm.data.blocks import MemoryBlockStore
from swarm.data.dataset import Reader, describe
from swarm.data.tensors import get_tensor
from swarm.errors import RemoteProtocolError
from swarm.graph.dag import encode_graph
from swarm.ids import digest
from swarm.wire.records.blobs import Blob, TensorBlob
from swarm.wire.records.manifest import Dataset, Field
from swarm.wire.tensors import ITEM_BYTES

PIECES = [bytes([number]) * (number * 7 % 40) for number in range(12)]
NAMES = st.sampled_from([digest(piece) for piece in PIECES] + ["a" * 52])
BLOBS = st.builds(
    Blob,
    size=st.one_of(st.integers(0, 200), st.integers(0, 2**53 - 1)),
    blocks=st.lists(NAMES, max_size=6).map(tuple),
)
DTYPES = st.sampled_from(sorted(ITEM_BYTES))
SHAPES = st.lists(st.one_of(st.integers(0, 8), st.integers(0, 2**48)), max_size=4).map(tuple)


def filled() -> MemoryBlockStore:
    store = MemoryBlockStore(1 << 20)
    for piece in PIECES:
        store.put(piece)
    return store


STORE = filled()


@given(BLOBS)
def test_any_blob_is_joined_or_missing_or_refused(blob: Blob):
    try:
        data = get_blob(STORE, blob, limit=1 << 16)
    except RemoteProtocolError:
        return
    assert (data is None) == any(not STORE.has(name) for name in blob.blocks)
    assert data is None or len(data) == blob.size


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_a_graph_or_refused(data: bytes, packed: bool):
    store = MemoryBlockStore(1 << 20)
    blob = put_blob(store, zstandard.ZstdCompressor().compress(data) if packed else data)
    try:
        graph = get_graph(store, blob)
    except RemoteProtocolError:
        return
    assert graph is not None
    assert encode_graph(graph)


@given(st.builds(TensorBlob, name=st.just("t"), dtype=DTYPES, shape=SHAPES, blob=BLOBS))
def test_any_tensor_is_read_or_missing_or_refused(tensor: TensorBlob):
    try:
        array = get_tensor(STORE, tensor)
    except RemoteProtocolError:
        return
    assert array is None or array.shape == tensor.shape


FIELDS = st.builds(Field, dtype=DTYPES, shape=SHAPES, per_block=st.integers(1, 2**53), blob=BLOBS)


@st.composite
def plausible_fields(draw: st.DrawFn, samples: int) -> Field:
    """Fields whose numbers fit each other, and whose blocks may not."""
    dtype, shape = draw(DTYPES), draw(st.lists(st.integers(1, 3), max_size=2).map(tuple))
    per_block = draw(st.integers(1, 5))
    count = -(-samples // per_block)
    size = samples * int(np.prod(shape)) * ITEM_BYTES[dtype]
    blocks = draw(st.lists(NAMES, min_size=count, max_size=count).map(tuple))
    return Field(dtype=dtype, shape=shape, per_block=per_block, blob=Blob(size=size, blocks=blocks))


@settings(max_examples=300)
@given(st.data())
def test_any_dataset_is_read_or_missing_or_refused(data: st.DataObject):
    samples = data.draw(st.integers(1, 12))
    field = data.draw(st.one_of(FIELDS, plausible_fields(samples)))
    dataset = Dataset(samples=samples, fields=(field,))
    chosen = np.array(data.draw(st.lists(st.integers(0, samples - 1), max_size=5)), dtype=np.int64)
    assert str(describe(dataset))
    try:
        reader = Reader(dataset, STORE)
        names, items = reader.blocks_for([0], chosen), reader.read(0, chosen)
    except RemoteProtocolError:
        return
    assert set(names) <= set(field.blob.blocks)
    assert items is None or items.shape == (len(chosen), *field.shape)
