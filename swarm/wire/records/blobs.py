"""Blobs: byte strings of any length as lists of blocks, and tensors kept that way."""

from typing import Annotated

from msgspec import Meta, Struct

from swarm.wire.messages.base import Count, LongId
from swarm.wire.tensors import DType, Sizes
from swarm.wire.text import Name


class Blob(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``size`` bytes, in order, in blocks of equal length but for the last."""

    size: Count
    blocks: Annotated[tuple[LongId, ...], Meta(max_length=65536)]


class TensorBlob(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A named tensor: C-contiguous little-endian elements in a blob."""

    name: Name
    dtype: DType
    shape: Sizes
    blob: Blob
