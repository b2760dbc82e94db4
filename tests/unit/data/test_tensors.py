import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from swarm.data.blocks import MemoryBlockStore
from swarm.data.checks import check_tensor
from swarm.data.tensors import STORED, get_tensor, put_tensor
from swarm.errors import LocalError, RemoteProtocolError
from swarm.ids import Digest
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.tensors import ITEM_BYTES, DType


def test_every_type_of_tensor_has_an_array_type_of_its_size():
    assert STORED.keys() == ITEM_BYTES.keys()
    assert {name: stored.itemsize for name, stored in STORED.items()} == ITEM_BYTES


@given(st.data())
def test_any_array_of_any_type_comes_back(data: st.DataObject):
    dtype: DType = data.draw(st.sampled_from(sorted(STORED)))
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    array = data.draw(hnp.arrays(STORED[dtype], shape))
    store = MemoryBlockStore(1 << 20)
    blob = put_tensor(store, "weight", array, dtype)
    found = get_tensor(store, blob)
    assert (blob.name, blob.dtype, blob.shape) == ("weight", dtype, array.shape)
    assert found is not None
    assert found.dtype == STORED[dtype]
    assert found.tobytes() == array.tobytes()
    assert found.shape == array.shape


@pytest.mark.parametrize("dtype", sorted(STORED))
def test_the_bytes_are_those_of_torch(store: MemoryBlockStore, dtype: DType):
    tensor = torch.arange(-3, 9).reshape(3, 4).to(getattr(torch, dtype))
    raw = tensor.view(torch.uint16) if dtype == "bfloat16" else tensor
    found = get_tensor(store, put_tensor(store, "t", raw.numpy(), dtype))
    assert found is not None
    assert found.tobytes() == bytes(tensor.untyped_storage())


def test_elements_are_stored_in_order_of_the_shape_whatever_the_layout(store: MemoryBlockStore):
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    first = put_tensor(store, "t", array.T, "int32")
    assert first.blob == put_tensor(store, "t", array.T.copy(), "int32").blob
    assert first.blob != put_tensor(store, "t", array.reshape(4, 3), "int32").blob


def test_big_endian_arrays_are_stored_like_others(store: MemoryBlockStore):
    array = np.arange(5, dtype=np.float32)
    assert put_tensor(store, "t", array.astype(">f4"), "float32") == put_tensor(store, "t", array, "float32")


def test_a_read_array_can_be_written_without_changing_the_store(store: MemoryBlockStore):
    blob = put_tensor(store, "t", np.zeros(4, dtype=np.float32), "float32")
    found = get_tensor(store, blob)
    assert found is not None
    found += 1
    again = get_tensor(store, blob)
    assert again is not None
    assert not again.any()


def test_an_array_of_another_type_is_a_bug(store: MemoryBlockStore):
    with pytest.raises(LocalError, match="float64"):
        put_tensor(store, "t", np.zeros(3), "float32")


def test_a_missing_block_is_none(store: MemoryBlockStore):
    blob = put_tensor(store, "t", np.zeros(3), "float64")
    store.discard(Digest(blob.blob.blocks[0]))
    assert get_tensor(store, blob) is None


def test_a_blob_of_another_size_than_the_shape_calls_for_is_refused(store: MemoryBlockStore):
    good = put_tensor(store, "t", np.zeros(3), "float64")
    bad = TensorBlob(name="t", dtype="float64", shape=(2**40, 2**40), blob=good.blob)
    with pytest.raises(RemoteProtocolError, match="t has 24 bytes"):
        check_tensor(bad)
    with pytest.raises(RemoteProtocolError):
        get_tensor(store, bad)


def test_truth_values_other_than_0_and_1_are_refused(store: MemoryBlockStore):
    numbers = put_tensor(store, "t", np.array([0, 1, 2], dtype=np.uint8), "uint8")
    with pytest.raises(RemoteProtocolError, match="neither 0 nor 1"):
        get_tensor(store, TensorBlob(name="t", dtype="bool", shape=(3,), blob=numbers.blob))
