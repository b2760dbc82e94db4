import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from swarm.data.blobs import (
    USUAL_BLOCK_BYTES,
    block_length,
    expected_block_bytes,
    get_blob,
    get_graph,
    put_blob,
    put_graph,
    split,
)
from swarm.data.blocks import MemoryBlockStore
from swarm.errors import RemoteProtocolError
from swarm.graph.dag import Graph, Operator, Ref, TensorSpec, Value
from swarm.ids import Digest
from swarm.wire.limits import MAX_BLOCK_BYTES, MAX_GRAPH_BYTES, MIB
from swarm.wire.records.blobs import Blob


@given(st.binary(max_size=3000), st.integers(1, 1000))
def test_blocks_in_order_are_the_bytes_and_all_but_the_last_are_equally_long(data: bytes, length: int):
    blocks = list(split(data, length))
    assert b"".join(blocks) == data
    assert all(len(block) == length for block in blocks[:-1])
    assert all(0 < len(block) <= length for block in blocks)


@given(st.integers(0, 2**45), st.integers(1, MAX_BLOCK_BYTES))
def test_a_block_holds_whole_units_within_the_limit(size: int, unit: int):
    length = block_length(size, unit)
    assert length % unit == 0
    assert unit <= length <= MAX_BLOCK_BYTES


def test_blocks_have_a_mebibyte_and_grow_once_there_are_too_many():
    assert block_length(5 * MIB) == MIB == USUAL_BLOCK_BYTES
    assert block_length(4096 * MIB) == MIB
    assert block_length(8192 * MIB) == 2 * MIB
    assert block_length(2**45) == MAX_BLOCK_BYTES
    assert block_length(10 * MIB, unit=300_000) == 900_000


def test_a_blob_comes_back(store: MemoryBlockStore):
    data = bytes(range(256)) * 8200  # two blocks of a mebibyte and a rest
    blob = put_blob(store, data)
    assert [store.length(Digest(name)) for name in blob.blocks] == [MIB, MIB, len(data) - 2 * MIB]
    assert get_blob(store, blob, limit=len(data)) == data


def test_an_empty_blob_has_no_blocks(store: MemoryBlockStore):
    blob = put_blob(store, b"")
    assert blob == Blob(size=0, blocks=())
    assert get_blob(store, blob, limit=0) == b""


def test_a_blob_with_a_missing_block_is_none(store: MemoryBlockStore):
    blob = put_blob(store, bytes(2 * MIB + 1))
    store.discard(Digest(blob.blocks[-1]))
    assert get_blob(store, blob, limit=1 << 30) is None


def test_a_blob_over_the_limit_is_refused_before_it_is_read(store: MemoryBlockStore):
    name = store.put(bytes(1000))
    endless = Blob(size=1000 * 60000, blocks=(name,) * 60000)
    with pytest.raises(RemoteProtocolError, match="over the limit"):
        get_blob(store, endless, limit=1 << 20)


@pytest.mark.parametrize(
    ("lengths", "size"),
    [((5, 5, 5), 14), ((5, 4, 5), 14), ((5, 6), 11), ((5, 0), 5), ((), 1), ((5,), 4)],
)
def test_blocks_that_do_not_make_the_blob_are_refused(
    store: MemoryBlockStore, lengths: tuple[int, ...], size: int
):
    blocks = tuple(store.put(bytes([index]) * length) for index, length in enumerate(lengths))
    with pytest.raises(RemoteProtocolError):
        get_blob(store, Blob(size=size, blocks=blocks), limit=1000)


@given(st.integers(1, 5000), st.integers(1, 600))
def test_the_expected_length_of_a_block_is_never_too_short(size: int, length: int):
    data = bytes(size)
    count = len(list(split(data, length)))
    blob = Blob(size=size, blocks=("a" * 52,) * count)
    assert expected_block_bytes(blob) >= min(length, size)


def graph() -> Graph:
    spec, number = TensorSpec("float32", (2, 2), (2, 1)), TensorSpec("float32", (), ())
    return Graph(
        format=1,
        mode="train",
        values=(Value("input", "input.0", spec, False), Value("output", "y", number, False)),
        operators=(Operator("aten.sum.default", (Ref(0),), (), (1,), "", "", False),),
        loss=1,
        outputs=(),
        updates=(),
    )


def test_a_graph_comes_back(store: MemoryBlockStore):
    assert get_graph(store, put_graph(store, graph())) == graph()


def test_a_graph_with_a_missing_block_is_none(store: MemoryBlockStore):
    blob = put_graph(store, graph())
    store.discard(Digest(blob.blocks[0]))
    assert get_graph(store, blob) is None


def unsized(data: bytes) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj()
    return compressor.compress(data) + compressor.flush()


@pytest.mark.parametrize(
    "packed",
    [
        b"",
        b"not a frame",
        zstandard.ZstdCompressor().compress(bytes(MAX_GRAPH_BYTES + 1)),
        unsized(msgspec.msgpack.encode(graph())),
        zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(graph())) + b"more",
        zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(graph()))[:-2],
        zstandard.ZstdCompressor().compress(b"\x90"),
    ],
    ids=["empty", "no frame", "too large", "hides its size", "more behind it", "cut short", "no graph"],
)
def test_bytes_that_are_no_packed_graph_are_refused(store: MemoryBlockStore, packed: bytes):
    blob = put_blob(store, packed)
    with pytest.raises(RemoteProtocolError):
        get_graph(store, blob)
