"""Tensors to bytes and back with their exact layout (decision D4).

Operators see layouts: kernels take other paths, and sum in another order, for other strides. So what crosses
a link keeps its strides and its place within a cache line. Layouts that do not travel, because elements
overlap or lie too far apart (``swarm.wire.tensors``), have one dense form, :func:`portable`; an executor that
wants the same bits in every partition uses that form wherever such a tensor is made.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
import torch
from msgspec import structs

from swarm.compress.staging import enter, leave, room
from swarm.errors import RemoteProtocolError
from swarm.wire.tensors import (
    CACHE_LINE_BYTES,
    MAX_SPREAD,
    TensorHeader,
    check_header,
    dense_strides,
    overlaps,
)

DTYPES: Final[dict[str, torch.dtype]] = {
    name: getattr(torch, name)
    for name in (
        "float64",
        "float32",
        "bfloat16",
        "float16",
        "int64",
        "int32",
        "int16",
        "int8",
        "uint8",
        "bool",
    )
}
"""torch's types by the names of the wire."""

NAMES: Final[dict[torch.dtype, str]] = {dtype: name for name, dtype in DTYPES.items()}

_INTEGERS: Final[dict[int, tuple[torch.dtype, type[np.generic]]]] = {
    1: (torch.uint8, np.uint8),
    2: (torch.int16, np.int16),
    4: (torch.int32, np.int32),
    8: (torch.int64, np.int64),
}
"""Integer types by bytes of an element; numpy has no bfloat16."""


def layout_of(tensor: torch.Tensor) -> TensorHeader:
    """The header that describes ``tensor`` as it lies in memory.

    Raises KeyError for a type that does not travel.
    """
    item = tensor.element_size()
    within = tensor.data_ptr() % CACHE_LINE_BYTES
    return TensorHeader(
        dtype=NAMES[tensor.dtype],  # type: ignore[arg-type]
        shape=tuple(tensor.shape),
        strides=tensor.stride(),
        offset=within // item if within % item == 0 else 0,
    )


@lru_cache(maxsize=64)
def holds(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether there can be a tensor of this type on the device: where not, torch raises one or the other."""
    try:
        torch.zeros(1, dtype=dtype, device=device)
    except (TypeError, RuntimeError):
        return False
    return True


def in_float64(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` in float64: on its device, or on the CPU where that has no such numbers, as MPS."""
    return (tensor if holds(tensor.device, torch.float64) else tensor.cpu()).double()


@lru_cache(maxsize=4096)
def travels_as(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether receivers accept this layout, strides of zero apart; independent of the element's size."""
    header = TensorHeader(dtype="uint8", shape=shape, strides=strides)
    return header.extent <= MAX_SPREAD * header.payload_bytes and not overlaps(shape, strides)


def travels(tensor: torch.Tensor) -> bool:
    """Whether the layout of ``tensor`` can be rebuilt by a receiver."""
    return tensor.is_contiguous() or travels_as(tensor.shape, tensor.stride())


def portable(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor``, or where its layout does not travel, a dense copy with the same order of dimensions."""
    if travels(tensor):
        return tensor
    header = layout_of(tensor)
    sent = header.sent_shape
    dense = dense_strides(sent, header.sent_order)
    strides = [
        0 if size != full else step for size, full, step in zip(sent, header.shape, dense, strict=True)
    ]
    return _copied(tensor, structs.replace(header, strides=tuple(strides), offset=0))


def own(tensor: torch.Tensor) -> torch.Tensor:
    """A copy of ``tensor`` in memory of its own, laid out in the same way."""
    return _copied(tensor, layout_of(tensor))


def _copied(tensor: torch.Tensor, header: TensorHeader) -> torch.Tensor:
    """A copy of ``tensor`` that lies in memory as ``header`` says, repeats where ``tensor`` has them."""
    memory = torch.empty(header.offset + header.extent, dtype=tensor.dtype, device=tensor.device)
    distinct = tensor.as_strided(header.sent_shape, tensor.stride(), tensor.storage_offset())
    memory.as_strided(header.sent_shape, header.strides, header.offset).copy_(distinct)
    return memory.as_strided(header.shape, header.strides, header.offset)


def flatten(tensor: torch.Tensor) -> tuple[TensorHeader, torch.Tensor]:
    """The header of ``tensor``, and its distinct elements in the order in which they travel, in one
    dimension.

    The elements are the tensor's own memory where they lie there in that order.
    """
    source = portable(tensor.detach())
    header = layout_of(source)
    distinct = source.as_strided(header.sent_shape, header.strides, source.storage_offset())
    elements = distinct.permute(header.sent_order).contiguous()
    return header, elements.as_strided((elements.numel(),), (1,), elements.storage_offset())


def unflatten(header: TensorHeader, elements: torch.Tensor) -> torch.Tensor:
    """The tensor that :func:`flatten` took apart, in new memory on the device of ``elements``."""
    memory = torch.empty(header.offset + header.extent, dtype=DTYPES[header.dtype], device=elements.device)
    there = memory.as_strided(header.sent_shape, header.strides, header.offset).permute(header.sent_order)
    there.copy_(elements.view(there.shape))
    return memory.as_strided(header.shape, header.strides, header.offset)


def dump(tensor: torch.Tensor) -> tuple[TensorHeader, memoryview]:
    """The header and the bytes of ``tensor``.

    The bytes are the tensor's own memory where its elements lie there in the order in which they travel:
    whoever holds them must not write to the tensor.
    """
    header, payload = dumping(tensor)
    return header, payload()


def dumping(tensor: torch.Tensor) -> tuple[TensorHeader, Callable[[], memoryview]]:
    """As :func:`dump`; what gives the bytes may wait for them, and be called on any thread."""
    header, elements = flatten(tensor)
    there = leave(elements)
    return header, lambda: memoryview(there().view(torch.uint8).numpy().data)


def rebuild(
    header: TensorHeader, payload: bytes | bytearray | memoryview, device: torch.device
) -> torch.Tensor:
    """The tensor that :func:`dump` took apart, in new memory on ``device``, by one copy of the payload.

    Raises RemoteProtocolError, before memory is allocated, for a header that describes no such tensor, or
    for a payload of another length.
    """
    check_header(header)
    size = memoryview(payload).nbytes
    if size != header.payload_bytes:
        raise RemoteProtocolError(f"a tensor of {header.payload_bytes} bytes came with {size} bytes")
    memory = room(header.offset + header.extent, DTYPES[header.dtype], device)
    integers, numpy_integers = _INTEGERS[memory.element_size()]
    elements = np.frombuffer(payload, numpy_integers)
    there = memory.as_strided(header.sent_shape, header.strides, header.offset).permute(header.sent_order)
    target = there.view(integers).numpy()
    target[...] = (elements != 0 if header.dtype == "bool" else elements).reshape(target.shape)
    return enter(memory, device).as_strided(header.shape, header.strides, header.offset)
