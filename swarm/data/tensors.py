"""Tensors as blobs: a name, a type, a shape, and C-contiguous little-endian elements in blocks.

numpy has no bfloat16; such tensors are arrays of their raw 16 bits, as uint16.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from swarm.data.blobs import get_blob, put_blob
from swarm.data.blocks import Blocks, Keeps
from swarm.data.checks import check_tensor
from swarm.errors import LocalError, RemoteProtocolError
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.tensors import DType

Array = np.ndarray[Any, np.dtype[Any]]

STORED: Final[Mapping[DType, np.dtype[Any]]] = {
    "float64": np.dtype("<f8"), "float32": np.dtype("<f4"), "bfloat16": np.dtype("<u2"),
    "float16": np.dtype("<f2"), "int64": np.dtype("<i8"), "int32": np.dtype("<i4"),
    "int16": np.dtype("<i2"), "int8": np.dtype("i1"), "uint8": np.dtype("u1"), "bool": np.dtype("?"),
}  # fmt: skip
"""The numpy type whose bytes stand for each type of tensor."""

TENSOR_BLOCKS: Final = 32
"""Blocks of a tensor above which they grow: whoever needs a tensor needs all of it, and a manifest, which is
one message, lists the blocks of every tensor of a model."""


def put_tensor(store: Keeps, name: str, array: Array, dtype: DType) -> TensorBlob:
    """Keep one tensor. ``array`` has the numpy type that stands for ``dtype``.

    Raises FailureError where it does not fit into the store, LocalError where the types differ.
    """
    stored = STORED[dtype]
    if array.dtype.newbyteorder("<") != stored:
        raise LocalError(f"{name} is an array of {array.dtype}, not of {dtype}")
    elements = np.asarray(array, dtype=stored, order="C")
    data = elements.reshape(-1).view(np.uint8).data
    blob = put_blob(store, data, unit=stored.itemsize, most=TENSOR_BLOCKS)
    return TensorBlob(name=name, dtype=dtype, shape=elements.shape, blob=blob)


def put_tensors(store: Keeps, arrays: Mapping[str, tuple[Array, DType]]) -> tuple[TensorBlob, ...]:
    """Keep tensors by name; raises as :func:`put_tensor` does."""
    return tuple(put_tensor(store, name, array, dtype) for name, (array, dtype) in arrays.items())


def get_tensor(store: Blocks, tensor: TensorBlob) -> Array | None:
    """The elements of ``tensor`` in memory of their own, or None where a block is missing.

    Raises RemoteProtocolError where the blob is not what type and shape call for. The caller has compared
    those two with what the graph wants, which bounds the memory.
    """
    check_tensor(tensor)
    data = get_blob(store, tensor.blob, limit=tensor.blob.size)
    if data is None:
        return None
    if tensor.dtype == "bool" and data.translate(None, delete=b"\0\1"):
        raise RemoteProtocolError(f"{tensor.name} has truth values that are neither 0 nor 1")
    return np.frombuffer(data, dtype=STORED[tensor.dtype]).reshape(tensor.shape)
