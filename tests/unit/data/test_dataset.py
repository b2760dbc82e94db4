import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm.data.blocks import MemoryBlockStore
from swarm.data.checks import check_dataset
from swarm.data.dataset import Reader, describe, prepare
from swarm.errors import MisuseError, RemoteProtocolError
from swarm.ids import Digest
from swarm.wire.limits import MAX_BLOCK_BYTES, MIB
from swarm.wire.records.blobs import Blob
from swarm.wire.records.manifest import Dataset, Field

CONVERT = "convert it to one of float64, float32, float16, int64, int32, int16, int8, uint8, bool"
BOUNDS = "it needs at least one, and at most 16,777,216"


def chosen(*positions: int) -> np.ndarray:
    return np.array(positions, dtype=np.int64)


@pytest.fixture
def fields() -> list[np.ndarray]:
    """1,000 samples: an item of 3,000 bytes and a label; the items take three blocks."""
    items = np.arange(1000 * 750, dtype=np.float32).reshape(1000, 25, 30)
    return [items, np.arange(1000, dtype=np.int64) % 10]


def test_samples_come_back_by_index_in_the_order_asked_for(store: MemoryBlockStore, fields: list[np.ndarray]):
    reader = Reader(prepare(fields, store), store)
    order = chosen(999, 0, 400, 400, 349)
    for number, field in enumerate(fields):
        found = reader.read(number, order)
        assert found is not None
        assert found.dtype == field.dtype
        np.testing.assert_array_equal(found, field[order])


def test_blocks_hold_whole_items_of_about_a_mebibyte(store: MemoryBlockStore, fields: list[np.ndarray]):
    dataset = prepare(fields, store)
    items, labels = dataset.fields
    assert items == Field(dtype="float32", shape=(25, 30), per_block=349, blob=items.blob)
    assert [store.length(Digest(name)) for name in items.blob.blocks] == [349 * 3000, 349 * 3000, 302 * 3000]
    assert (labels.shape, len(labels.blob.blocks)) == ((), 1)
    assert str(describe(dataset)) == "1,000 samples, 2.9 MiB in 4 blocks"


def test_the_same_samples_make_the_same_record_everywhere(fields: list[np.ndarray]):
    again = [np.asfortranarray(fields[0]), fields[1].astype(">i8")]
    assert prepare(fields, MemoryBlockStore(1 << 30)) == prepare(again, MemoryBlockStore(1 << 30))


def test_only_the_blocks_of_the_wanted_fields_and_samples_are_named(
    store: MemoryBlockStore, fields: list[np.ndarray]
):
    dataset = prepare(fields, store)
    reader = Reader(dataset, store)
    items, labels = (field.blob.blocks for field in dataset.fields)
    assert reader.blocks_for([0], chosen(3, 348, 999)) == [items[0], items[2]]
    assert reader.blocks_for([1], chosen(3, 999)) == [labels[0]]
    assert reader.blocks_for([1, 0], chosen(350)) == [labels[0], items[1]]
    assert reader.blocks_for([], chosen(350)) == []


def test_a_missing_block_is_none_until_it_is_there(store: MemoryBlockStore, fields: list[np.ndarray]):
    dataset = prepare(fields, store)
    name = Digest(dataset.fields[0].blob.blocks[1])
    data = store.get(name)
    store.discard(name)
    reader = Reader(dataset, store)
    assert reader.read(0, chosen(0, 400)) is None
    assert reader.read(0, chosen(0, 348)) is not None
    assert data is not None
    store.put(data)
    assert reader.read(0, chosen(0, 400)) is not None


def test_blocks_at_hand_are_not_read_again(store: MemoryBlockStore, fields: list[np.ndarray]):
    dataset = prepare(fields, store)
    reader = Reader(dataset, store)
    assert reader.read(0, chosen(0)) is not None
    store.discard(Digest(dataset.fields[0].blob.blocks[0]))
    assert reader.read(0, chosen(1)) is not None


def test_a_reader_keeps_a_bounded_amount_at_hand(store: MemoryBlockStore):
    items = np.zeros((70, MIB), dtype=np.uint8)
    items[:, 0] = np.arange(70)
    dataset = prepare([items], store)
    reader = Reader(dataset, store)
    for sample in range(70):
        assert reader.read(0, chosen(sample)) is not None
    for name in dataset.fields[0].blob.blocks:
        store.discard(Digest(name))
    at_hand = [sample for sample in range(70) if reader.read(0, chosen(sample)) is not None]
    assert at_hand == list(range(6, 70))


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?"])
def test_every_type_comes_back(store: MemoryBlockStore, dtype: str):
    field = (np.arange(24).reshape(6, 4) % 3).astype(dtype)
    found = Reader(prepare([field], store), store).read(0, chosen(5, 2))
    assert found is not None
    np.testing.assert_array_equal(found, field[[5, 2]])


@given(st.integers(1, 40), st.lists(st.integers(1, 4), max_size=3), st.data())
def test_any_selection_of_any_shape_comes_back(samples: int, shape: list[int], data: st.DataObject):
    field = np.arange(samples * int(np.prod(shape)), dtype=np.int32).reshape(samples, *shape)
    order = np.array(data.draw(st.lists(st.integers(0, samples - 1), max_size=20)), dtype=np.int64)
    store = MemoryBlockStore(1 << 20)
    found = Reader(prepare([field], store), store).read(0, order)
    assert found is not None
    np.testing.assert_array_equal(found, field[order])


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ([], "the dataset has no fields: each sample needs at least one array"),
        ([np.zeros(3), np.zeros(4)], "the dataset's fields have 3, 4 items: all need the same number"),
        ([np.zeros((0, 2))], "the dataset has no samples"),
        ([np.float64(3)], "a field of the dataset is a single number: give arrays of one item a sample"),
        ([np.zeros(3, dtype=np.complex64)], f"field 0 of the dataset has the type complex64: {CONVERT}"),
        ([np.zeros(3, dtype=object)], f"field 0 of the dataset has the type object: {CONVERT}"),
        ([np.zeros(2), np.zeros((2, 0))], f"one item of field 1 of the dataset has 0 bytes: {BOUNDS}"),
        (
            [np.zeros((1, MAX_BLOCK_BYTES + 1), dtype=np.uint8)],
            f"one item of field 0 of the dataset has 16,777,217 bytes: {BOUNDS}",
        ),
        (
            [np.zeros((1,) * 17)],
            "an item of field 0 of the dataset has 16 dimensions: it may have 15",
        ),
    ],
)
def test_what_is_no_dataset_is_refused_in_one_line(
    store: MemoryBlockStore, fields: list[np.ndarray], sentence: str
):
    with pytest.raises(MisuseError) as caught:
        prepare(fields, store)
    assert str(caught.value) == sentence


def record(**changes: object) -> Dataset:
    facts = {
        "dtype": "int32",
        "shape": (2,),
        "per_block": 3,
        "blob": Blob(size=80, blocks=("a" * 52,) * 4),
    } | changes
    return Dataset(samples=10, fields=(Field(**facts),))


def test_a_sound_record_is_accepted():
    check_dataset(record())


@pytest.mark.parametrize(
    "changes",
    [
        {"blob": Blob(size=81, blocks=("a" * 52,) * 4)},
        {"blob": Blob(size=80, blocks=("a" * 52,) * 3)},
        {"per_block": 4},
        {"per_block": MAX_BLOCK_BYTES},
        {"shape": (0,), "blob": Blob(size=0, blocks=("a" * 52,) * 4)},
        {"shape": (2**48, 2**48)},
    ],
)
def test_records_whose_numbers_do_not_fit_are_refused(changes: dict[str, object], store: MemoryBlockStore):
    with pytest.raises(RemoteProtocolError):
        Reader(record(**changes), store)


def test_a_block_of_another_length_is_refused(store: MemoryBlockStore):
    name = store.put(b"x" * 23)
    dataset = record(blob=Blob(size=80, blocks=(name,) * 4))
    with pytest.raises(RemoteProtocolError, match="another length"):
        Reader(dataset, store).read(0, chosen(0))


def test_truth_values_other_than_0_and_1_are_refused(store: MemoryBlockStore):
    name = store.put(b"\2" * 20)
    dataset = Dataset(samples=10, fields=(Field("bool", (2,), 10, Blob(size=20, blocks=(name,))),))
    with pytest.raises(RemoteProtocolError, match="neither 0 nor 1"):
        Reader(dataset, store).read(0, chosen(0))
