import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from swarm.compress.layout import DTYPES, NAMES, dump, layout_of, own, portable, rebuild, travels
from swarm.errors import RemoteProtocolError
from swarm.wire.tensors import ITEM_BYTES, MAX_SPREAD, TensorHeader, check_header

CPU = torch.device("cpu")
BASE = torch.arange(8 * 6 * 9, dtype=torch.float32).reshape(8, 6, 9)


def within_line(tensor: torch.Tensor) -> int:
    return tensor.data_ptr() % 64


@pytest.mark.parametrize(
    "tensor",
    [
        BASE,
        BASE.transpose(0, 2),
        BASE[None].to(memory_format=torch.channels_last),
        BASE[:, :, 3:6],
        BASE[:, :, 3:6].transpose(0, 1),
        BASE[3:],
        BASE[0, 0, 5],
        BASE[None].expand(5, 8, 6, 9),
        BASE[0, 0, :6, None].expand(4, 6, 7),
        torch.zeros(()).expand(4, 4),
        torch.zeros(0, 3),
        torch.zeros(3, 0),
        torch.zeros(2, 1, 3).as_strided((2, 1, 3), (3, 999, 1)),
        torch.tensor([True, False, True])[1:],
        torch.arange(7)[3:],
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}-{tensor.stride()}",
)
def test_a_layout_that_travels_is_rebuilt_to_the_byte(tensor):
    assert travels(tensor)
    header, payload = dump(tensor)
    rebuilt = rebuild(header, payload, CPU)
    assert torch.equal(rebuilt, tensor)
    assert rebuilt.dtype == tensor.dtype
    assert rebuilt.stride() == tensor.stride()
    assert within_line(rebuilt) == within_line(tensor) or not tensor.numel()
    assert payload.nbytes == header.payload_bytes


@pytest.mark.parametrize(
    ("tensor", "strides"),
    [
        (BASE[:, 0], (9, 1)),
        (BASE[..., 4], (6, 1)),
        (BASE[..., 4].t(), (1, 6)),
        (BASE[:, 0, None].expand(8, 5, 9), (9, 0, 1)),
        (BASE.unfold(2, 3, 1), (126, 21, 3, 1)),
    ],
    ids=["row", "column", "transposed column", "expanded row", "overlapping windows"],
)
def test_a_layout_that_does_not_travel_has_one_dense_form_in_the_same_order(tensor, strides):
    assert not travels(tensor)
    dense = portable(tensor)
    assert torch.equal(dense, tensor)
    assert dense.stride() == strides
    assert travels(dense)
    header, payload = dump(tensor)
    assert header.strides == strides
    assert torch.equal(rebuild(header, payload, CPU), tensor)


def test_what_travels_is_left_alone():
    part = BASE[:, :, 3:6]
    assert portable(part) is part


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_type_of_the_wire_travels(name):
    tensor = torch.tensor([0, 1, 2, 3, 0, 1]).to(DTYPES[name]).reshape(2, 3).t()
    header, payload = dump(tensor)
    assert header.dtype == name == NAMES[tensor.dtype]
    assert payload.nbytes == 6 * ITEM_BYTES[name]
    assert torch.equal(rebuild(header, bytes(payload), CPU), tensor)


def test_the_wire_and_torch_name_the_same_types():
    assert set(DTYPES) == set(ITEM_BYTES)
    assert all(DTYPES[name].itemsize == size for name, size in ITEM_BYTES.items())


def test_bytes_of_a_dense_tensor_are_its_own_memory():
    tensor = BASE.transpose(0, 1).clone(memory_format=torch.preserve_format)
    _, payload = dump(tensor)
    tensor[0, 0, 0] = 5.0
    assert torch.frombuffer(payload, dtype=torch.float32)[0] == 5.0


def test_a_rebuilt_tensor_does_not_use_the_payload_any_more():
    header, payload = dump(BASE)
    data = bytearray(payload)
    rebuilt = rebuild(header, data, CPU)
    data[:] = bytes(len(data))
    assert torch.equal(rebuilt, BASE)


def test_a_copy_of_ones_own_lies_the_same_way():
    view = BASE[:, :, 3:6].transpose(0, 1)
    copy = own(view)
    assert torch.equal(copy, view)
    assert (copy.stride(), within_line(copy)) == (view.stride(), within_line(view))
    assert copy.untyped_storage().data_ptr() != BASE.untyped_storage().data_ptr()


def test_truth_values_from_elsewhere_become_zeros_and_ones():
    header = TensorHeader(dtype="bool", shape=(4,), strides=(1,))
    rebuilt = rebuild(header, bytes([0, 1, 2, 255]), CPU)
    assert rebuilt.view(torch.uint8).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize("size", [0, 11, 13])
def test_a_payload_of_another_length_is_refused(size):
    header = TensorHeader(dtype="float32", shape=(3,), strides=(1,))
    with pytest.raises(RemoteProtocolError, match=f"a tensor of 12 bytes came with {size} bytes"):
        rebuild(header, bytes(size), CPU)


@pytest.mark.parametrize(
    "header",
    [
        TensorHeader(dtype="float32", shape=(3,), strides=(1, 1)),
        TensorHeader(dtype="float32", shape=(3, 3), strides=(1, 1)),
        TensorHeader(dtype="float32", shape=(3,), strides=(10**6,)),
        TensorHeader(dtype="float32", shape=(2**40,), strides=(0,)),
    ],
    ids=["dimensions", "overlap", "spread", "repeats"],
)
def test_a_header_of_no_tensor_is_refused(header):
    with pytest.raises(RemoteProtocolError, match="a tensor header"):
        rebuild(header, bytes(4), CPU)


@given(
    shape=st.lists(st.integers(0, 5), max_size=4),
    order=st.randoms(use_true_random=False),
    start=st.integers(0, 3),
    step=st.integers(1, 6),
)
def test_whatever_is_dumped_can_be_rebuilt(shape, order, start, step):
    full = torch.arange(torch.Size([*shape, 12]).numel(), dtype=torch.int32).reshape(*shape, 12)
    dimensions = list(range(full.dim()))
    order.shuffle(dimensions)
    tensor = full[..., start::step].permute(dimensions)
    header, payload = dump(tensor)
    check_header(header)
    assert header.extent <= MAX_SPREAD * max(header.elements, 1)
    rebuilt = rebuild(header, payload, CPU)
    assert torch.equal(rebuilt, tensor)
    assert layout_of(rebuilt).strides == header.strides
