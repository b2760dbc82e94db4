"""How a tensor describes itself on the wire: data type, shape, and the exact layout to rebuild.

Operators see layouts: ``view`` refuses what it cannot alias, and kernels sum in the order of memory. So the
receiver rebuilds the sender's strides and its offset within a cache line, not just the order of dimensions
(decision D4). Only distinct elements travel: a dimension of stride zero is sent once, and the elements
follow each other in order of decreasing stride, without the gaps.
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from swarm.errors import RemoteProtocolError
from swarm.wire.limits import MAX_DIMENSIONS, MAX_PAYLOAD_BYTES

ITEM_BYTES: Final[dict[str, int]] = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
"""Bytes of one element, by data type name; the keys are all the types a tensor may have."""

FLOATING: Final = frozenset({"float64", "float32", "bfloat16", "float16"})
"""Types that gradients exist for."""

CACHE_LINE_BYTES: Final = 64
"""Allocators align to this, so an offset below it is all that a kernel can see of a tensor's address."""

MAX_SPREAD: Final = 4
"""A layout may span this many times its elements' bytes; senders pack what spans more. A third of a fused
query-key-value projection spans three times its own."""

DType = Literal[
    "float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool"
]
Size = Annotated[int, Meta(ge=0, le=2**48)]
Sizes = Annotated[tuple[Size, ...], Meta(max_length=MAX_DIMENSIONS)]


class TensorHeader(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What the receiver needs to rebuild a tensor from raw bytes.

    ``strides`` and ``offset`` count elements. Use :func:`check_header` on one that came from elsewhere.
    """

    dtype: DType
    shape: Sizes
    strides: Sizes
    offset: Annotated[int, Meta(ge=0, lt=CACHE_LINE_BYTES)] = 0

    @property
    def elements(self) -> int:
        """Number of elements, counting repeats along dimensions of stride zero."""
        return _product(self.shape)

    @property
    def payload_bytes(self) -> int:
        """Bytes that travel: the distinct elements."""
        return _product(self.sent_shape) * ITEM_BYTES[self.dtype]

    @property
    def sent_shape(self) -> tuple[int, ...]:
        """The shape with dimensions of stride zero reduced to one element."""
        return tuple(
            min(size, 1) if stride == 0 else size
            for size, stride in zip(self.shape, self.strides, strict=True)
        )

    @property
    def sent_order(self) -> tuple[int, ...]:
        """The dimensions in the order in which the elements travel: by decreasing stride."""
        return tuple(sorted(range(len(self.shape)), key=lambda i: (-self.strides[i], i)))

    @property
    def extent(self) -> int:
        """Elements of memory from the tensor's first to its last, inclusive; 0 where it has none."""
        if not self.elements:
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


def check_header(header: TensorHeader) -> None:
    """Raise RemoteProtocolError unless ``header`` describes a tensor without overlap within the limits.

    To be called before memory is allocated for it.
    """
    if len(header.shape) != len(header.strides):
        raise RemoteProtocolError("a tensor header has strides for another number of dimensions")
    item = ITEM_BYTES[header.dtype]
    if header.payload_bytes > MAX_PAYLOAD_BYTES or header.elements * item > MAX_PAYLOAD_BYTES:
        raise RemoteProtocolError("a tensor header exceeds the limit of a payload")
    if header.extent * item > MAX_SPREAD * header.payload_bytes + CACHE_LINE_BYTES:
        raise RemoteProtocolError("a tensor header spreads its elements too thin")
    if overlaps(header.shape, header.strides):
        raise RemoteProtocolError("a tensor header describes elements that overlap")


def overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two indices may name one place, dimensions of stride zero apart.

    Conservative for layouts that no operator of ours makes: sorted by stride, each dimension must step over
    all that the smaller ones span.
    """
    span = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride > 0:
            if stride < span:
                return True
            span = (size - 1) * stride + span
    return False


def dense_strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a tensor without gaps whose dimensions lie in memory in ``order``, outermost first."""
    strides = [0] * len(shape)
    step = 1
    for dimension in reversed(order):
        strides[dimension] = step
        step *= max(shape[dimension], 1)
    return tuple(strides)


def _product(sizes: tuple[int, ...]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count
