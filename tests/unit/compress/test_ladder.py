"""Every codec: what it gives back, how near, and that nothing but its arguments decides its bytes."""

import math
import zlib
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.compress.codec import Mask, Place, Rebuilt, Request
from swarm.compress.ladder import SMALLEST, Encoded, put_together, read, take_apart
from swarm.errors import RemoteProtocolError
from swarm.wire.codecs import CodecSpec, parse_policy
from swarm.wire.coding import CodecName, Coding, Section, check_coding
from swarm.wire.tensors import TensorHeader

CPU = torch.device("cpu")
DENSE = ["bf16", "bf16z", "int8", "int6", "int5", "int4"]
SPARSE = ["topk:50%:16", "topk:10%:8", "topk:3%:4", "topk:1%:16"]
STEP = {"int8": 127, "int6": 31, "int5": 15, "int4": 7}


def spec(text: str) -> CodecSpec:
    return parse_policy(text).codec


def encode(
    tensor: torch.Tensor, text: str, *, seed: int = 1, gradient: bool = False, mask: Mask | None = None
) -> Encoded:
    return take_apart(tensor, spec(text), Request(seed=seed, gradient=gradient, mask=mask)).encode()


def decode(encoded: Encoded, mask: Mask | None = None) -> Rebuilt:
    if encoded.coding is not None:
        check_coding(encoded.header, encoded.coding, encoded.payload.nbytes)
    return put_together(read(encoded), Place(device=CPU, mask=mask))


def noise(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def layouts() -> list[torch.Tensor]:
    base = noise(8, 6, 10, 12)
    return [
        base,
        base.transpose(1, 3),
        base.to(memory_format=torch.channels_last),
        base[:, :, 3:7],
        base[2:],
        noise(40, 70)[:, 1:],
        noise(1000)[3:],
        noise(5, 1, 300).expand(5, 4, 300),
    ]


@pytest.mark.parametrize("text", DENSE + SPARSE)
@pytest.mark.parametrize("tensor", layouts(), ids=lambda t: f"{tuple(t.shape)}-{t.stride()}")
def test_shape_type_and_layout_arrive(text: str, tensor: torch.Tensor) -> None:
    found = decode(encode(tensor, text)).tensor
    assert (found.shape, found.dtype, found.stride()) == (tensor.shape, tensor.dtype, tensor.stride())


@pytest.mark.parametrize("text", DENSE + SPARSE)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_each_type_of_floating_point_travels(text: str, dtype: torch.dtype) -> None:
    tensor = noise(30, 50, dtype=dtype)
    found = decode(encode(tensor, text)).tensor
    assert found.dtype == dtype
    assert (found.double() - tensor.double()).norm() < tensor.double().norm()


def test_bfloat16_is_torchs_rounding() -> None:
    tensor = noise(40, 40)
    for text in ("bf16", "bf16z"):
        assert torch.equal(decode(encode(tensor, text)).tensor, tensor.bfloat16().float())


@pytest.mark.parametrize("text", STEP)
def test_quantised_elements_are_within_half_a_step_of_their_group(text: str) -> None:
    tensor = noise(64, 128)
    error = (decode(encode(tensor, text)).tensor - tensor).view(-1, 128 if text == "int8" else 64)
    groups = tensor.view(error.shape)
    if text == "int8":
        half = groups.abs().amax(1, keepdim=True) / STEP[text] / 2
        assert bool((error.abs() <= half * 1.01 + groups.abs() / 256).all())
    else:  # the rotation spreads an error over its group, and keeps its norm
        half = groups.norm(dim=1) / STEP[text] / 2
        assert bool((error.norm(dim=1) <= 8 * half * 1.05).all())


def test_a_rotated_group_keeps_its_small_elements_beside_an_outlier() -> None:
    tensor = noise(64, 64) * 0.01
    tensor[:, 5] = 3.0
    plain = (tensor / (3 / 7)).round() * (3 / 7)
    rotated = decode(encode(tensor, "int4")).tensor
    others = torch.arange(64) != 5
    assert plain[:, others].abs().max() == 0
    assert torch.corrcoef(torch.stack([rotated[:, others].ravel(), tensor[:, others].ravel()]))[0, 1] > 0.02


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
@pytest.mark.parametrize("size", [(40, 50), (700, 800)])
def test_top_k_keeps_exactly_the_largest_entries(share: float, size: tuple[int, int]) -> None:
    tensor = noise(*size)
    kept = math.ceil(tensor.numel() * share)
    found = decode(encode(tensor, f"topk:{share * 100:g}%:16"))
    assert found.mask is not None
    expected = torch.zeros(tensor.numel(), dtype=torch.bool)
    expected[tensor.abs().ravel().topk(kept).indices] = True
    assert torch.equal(found.tensor.ravel() != 0, expected)
    assert torch.equal(found.tensor.ravel()[expected], tensor.ravel()[expected].bfloat16().float())


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_gradient_goes_back_on_its_activations_mask(bits: int) -> None:
    activation, gradient = noise(60, 80), noise(60, 80, seed=1)
    forward = take_apart(activation, spec(f"topk:10%:{bits}"), Request(seed=1, gradient=False))
    arrived = decode(forward.encode())
    back = encode(gradient, f"topk:10%:{bits}", gradient=True, mask=arrived.mask)
    assert back.coding is not None
    assert back.coding.order == "mask"
    assert back.payload.nbytes < forward.encode().payload.nbytes
    found = decode(back, forward.mask).tensor
    assert torch.equal(found != 0, (arrived.tensor != 0) & (found != 0))
    masked = torch.where(arrived.tensor != 0, gradient, 0.0)
    assert (found - masked).norm() <= masked.norm() * {4: 0.25, 8: 0.02, 16: 0.005}[bits]


def test_crowded_entries_are_coded_by_channels_and_come_back_in_place() -> None:
    tensor = noise(500, 64)
    tensor[:, :4] *= 50
    encoded = encode(tensor, "topk:5%:16")
    assert encoded.coding is not None
    assert encoded.coding.order == "channels"
    kept = (decode(encoded).tensor != 0).nonzero()
    assert set(kept[:, 1].tolist()) == {0, 1, 2, 3}
    gradient = noise(500, 64, seed=3)
    arrived = decode(encoded)
    back = decode(encode(gradient, "topk:5%:16", gradient=True, mask=arrived.mask), arrived.mask).tensor
    assert torch.equal(back, torch.where(arrived.tensor != 0, gradient.bfloat16().float(), 0.0))


@pytest.mark.parametrize("text", ["int8", "int6", "int5", "int4"])
def test_gradients_are_rounded_without_bias(text: str) -> None:
    tensor = torch.full((1, 256), 0.3)
    tensor[0, ::64] = 1.0
    means = [decode(encode(tensor, text, seed=seed, gradient=True)).tensor for seed in range(300)]
    assert torch.stack(means).mean(0) == pytest.approx(tensor, abs=0.06)


@pytest.mark.parametrize("text", DENSE + SPARSE)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_arrives_as_it_was(text: str, bad: float) -> None:
    tensor = noise(40, 50)
    tensor[3, 7] = bad
    found = decode(encode(tensor, text)).tensor
    assert torch.equal(found[3, 7].isnan(), tensor[3, 7].isnan())
    assert bool((found[3, 7] == tensor[3, 7]) | tensor[3, 7].isnan())


@pytest.mark.parametrize("text", DENSE + SPARSE)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_gradient_that_is_not_finite_comes_back_as_it_was_in_the_mask_or_outside(
    text: str, bad: float
) -> None:
    activation = noise(40, 50)
    forward = take_apart(activation, spec(text), Request(seed=1, gradient=False))
    arrived = decode(forward.encode())
    for largest in (True, False):
        gradient = noise(40, 50, seed=2)
        place = activation.abs().argmax() if largest else activation.abs().argmin()
        gradient.view(-1)[place] = bad
        back = decode(encode(gradient, text, gradient=True, mask=arrived.mask), forward.mask).tensor
        assert torch.equal(back.view(-1)[place], torch.tensor(bad)) or bool(back.view(-1)[place].isnan())
        assert bool(back.view(-1)[place].isnan()) == math.isnan(bad)


@pytest.mark.parametrize("text", DENSE + SPARSE)
def test_zeros_equal_elements_and_denormals_stay_finite(text: str) -> None:
    for tensor in (torch.zeros(30, 30), torch.full((30, 30), 2.5), torch.full((30, 30), 1e-41)):
        found = decode(encode(tensor, text)).tensor
        assert bool(found.isfinite().all())
        assert found.abs().max() <= tensor.abs().max() * 1.01
    assert not decode(encode(torch.zeros(30, 30), text)).tensor.any()


@pytest.mark.parametrize("text", DENSE + SPARSE)
def test_what_no_codec_is_for_travels_as_it_is(text: str) -> None:
    for tensor in (
        torch.arange(1000),
        torch.ones(1000, dtype=torch.bool),
        noise(SMALLEST - 1),
        torch.zeros(0, 5),
        torch.tensor(1.5),
    ):
        encoded = encode(tensor, text)
        assert encoded.coding is None
        assert torch.equal(decode(encoded).tensor, tensor)


@settings(max_examples=60, deadline=None)
@given(
    text=st.sampled_from(DENSE + SPARSE),
    shape=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    gradient=st.booleans(),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e4]),
    seed=st.integers(0, 2**63 - 1),
)
def test_equal_arguments_give_equal_bytes(
    text: str, shape: list[int], gradient: bool, scale: float, seed: int
) -> None:
    tensor = noise(*shape, seed=seed % 1000) * scale
    first, second = (encode(tensor, text, seed=seed, gradient=gradient) for _ in range(2))
    assert (first.header, first.coding) == (second.header, second.coding)
    assert bytes(first.payload) == bytes(second.payload)
    found = decode(first).tensor
    assert found.shape == tensor.shape
    assert bool(found.isfinite().all())


def hostile(encoded: Encoded, **changes: object) -> Encoded:
    assert encoded.coding is not None
    coding = msgspec.structs.replace(encoded.coding, **changes)
    return replace(encoded, coding=coding)


@pytest.mark.parametrize("text", DENSE + SPARSE)
def test_a_changed_byte_is_found(text: str) -> None:
    encoded = encode(noise(60, 60), text)
    spoiled = bytearray(encoded.payload)
    spoiled[len(spoiled) // 2] ^= 1
    with pytest.raises(RemoteProtocolError, match="checksum"):
        read(replace(encoded, payload=memoryview(spoiled)))


@pytest.mark.parametrize("text", DENSE + SPARSE)
def test_foreign_bytes_behind_a_right_checksum_are_refused_or_a_tensor(text: str) -> None:
    encoded = encode(noise(60, 60), text)
    chance = torch.Generator().manual_seed(5)
    for _ in range(60):
        spoiled = bytearray(encoded.payload)
        for place in torch.randint(len(spoiled), (3,), generator=chance).tolist():
            spoiled[place] = int(torch.randint(256, (1,), generator=chance))
        changed = replace(hostile(encoded, checksum=zlib.crc32(spoiled)), payload=memoryview(bytes(spoiled)))
        try:
            found = decode(changed)
        except RemoteProtocolError:
            continue
        assert found.tensor.shape == (60, 60)


def test_a_bomb_is_refused_by_its_lengths() -> None:
    encoded = encode(noise(60, 60), "int4")
    sections = encoded.coding.sections if encoded.coding is not None else ()
    for raw in (2**30, sections[1].raw + 1, 0):
        bomb = hostile(encoded, sections=(sections[0], Section(raw, min(raw, sections[1].stored))))
        with pytest.raises(RemoteProtocolError, match="refused"):
            read(bomb)


@pytest.mark.parametrize(
    "changes",
    [
        {"kept": 2**29},
        {"kept": 0},
        {"bits": None},
        {"order": None},
        {"order": "mask"},
        {"order": "channels", "sections": ()},
        {"shift": 30},
        {"codec": "int8"},
        {"codec": "bf16"},
    ],
    ids=str,
)
def test_a_coding_that_does_not_fit_its_tensor_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(RemoteProtocolError, match="refused"):
        read(hostile(encode(noise(60, 60), "topk:10%:8"), **changes))


@pytest.mark.parametrize("order", ["rows", "channels", "mask"])
def test_a_coding_that_keeps_nothing_is_refused(order: str) -> None:
    nothing = (Section(0, 0),) * (2 if order == "mask" else 4)
    encoded = hostile(
        encode(noise(60, 60), "topk:10%:8"), kept=0, order=order, shift=0, sections=nothing, checksum=0
    )
    with pytest.raises(RemoteProtocolError, match="refused"):
        read(replace(encoded, payload=memoryview(b"")))


@pytest.mark.parametrize("shape", [(0, 8), (8, 0)])
@pytest.mark.parametrize("codec", ["bf16", "bf16z", "int8", "int4", "topk"])
def test_a_tensor_without_elements_is_not_encoded(codec: CodecName, shape: tuple[int, ...]) -> None:
    header = TensorHeader(dtype="float32", shape=shape, strides=(8, 1))
    how: dict[str, Any] = {"bits": 8, "order": "channels"} if codec == "topk" else {}
    sections = (Section(0, 0),) * {"bf16": 1, "topk": 4}.get(codec, 2)
    coding = Coding(codec=codec, sections=sections, checksum=0, **how)
    with pytest.raises(RemoteProtocolError, match="without elements"):
        read(Encoded(header=header, payload=memoryview(b""), coding=coding))


def test_values_of_more_bits_than_said_are_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="values of 4 bits"):
        decode(hostile(encode(noise(60, 60), "topk:10%:8"), bits=4))


def test_a_gradient_for_another_mask_is_refused() -> None:
    mask = decode(encode(noise(60, 60), "topk:10%:8")).mask
    back = encode(noise(60, 60, seed=2), "topk:10%:8", gradient=True, mask=mask)
    other = decode(encode(noise(60, 60), "topk:9%:8")).mask
    for wrong in (None, other):
        with pytest.raises(RemoteProtocolError, match=r"mask|entries"):
            decode(back, wrong)


def test_a_header_of_2_to_the_31_elements_is_judged_without_memory() -> None:
    encoded = encode(noise(60, 60), "int8")
    header = msgspec.structs.replace(encoded.header, shape=(2**16, 2**15), strides=(2**15, 1))
    with pytest.raises(RemoteProtocolError, match="limit"):
        check_coding(header, encoded.coding or Coding(codec="int8", sections=(), checksum=0), 0)
