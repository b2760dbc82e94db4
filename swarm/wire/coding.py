"""How an encoded tensor describes itself on the wire (decision D8).

A tensor that a codec took apart travels as sections of bytes, each plain or compressed with zstandard. Header
and ``Coding`` say how long each section is before it is compressed, so that all sizes are checked before
memory is spent. The elements of a tensor are counted in the order in which they travel
(``swarm.wire.tensors``).
"""

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from swarm.errors import RemoteProtocolError
from swarm.wire.limits import MAX_PAYLOAD_BYTES
from swarm.wire.tensors import FLOATING, TensorHeader, check_header

CodecName = Literal["bf16", "bf16z", "int8", "int6", "int5", "int4", "topk"]
ValueBits = Literal[4, 8, 16]

GROUP: Final = 64
"""Elements that share a scale in codecs of fewer than 8 bits; also the size of the Hadamard rotation."""

TOKEN_GROUPS: Final = range(16, 65_537)
"""Sizes of the innermost dimension that int8 takes for a token, which has one scale."""

ODD_GROUP: Final = 256
"""Elements that share a scale in int8 where the innermost dimension is no token."""

SCALE_BYTES: Final = 2
"""A scale is a bfloat16: it has the range of float32."""

SKIP: Final = 255
"""The byte of a gap's high part that passes over ``SKIP << shift`` elements without an entry."""

SYMBOL_BITS: Final[dict[str, int]] = {"int8": 8, "int6": 6, "int5": 5, "int4": 4}
"""Bits of one element in the codecs that only quantise; before compression each takes a byte."""


class Section(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A run of payload bytes: ``stored`` of them, ``raw`` once decompressed; equal where nothing was
    compressed."""

    raw: Annotated[int, Meta(ge=0, le=MAX_PAYLOAD_BYTES)]
    stored: Annotated[int, Meta(ge=0, le=MAX_PAYLOAD_BYTES)]


class Coding(Struct, frozen=True, array_like=True, forbid_unknown_fields=True, kw_only=True):
    """What a codec wrote. Use :func:`check_coding` on one that came from elsewhere.

    ``kept``, ``bits``, ``order`` and ``shift`` are those of ``topk``: entries kept; bits of a value; whether
    the entries follow each other by rows, by channels, or are those of the activation whose gradient this is;
    and how many low bits of each gap travel as they are.
    """

    codec: CodecName
    sections: Annotated[tuple[Section, ...], Meta(max_length=4)]
    checksum: Annotated[int, Meta(ge=0, lt=2**32)]
    """CRC-32 of the payload."""
    kept: Annotated[int, Meta(ge=0, le=MAX_PAYLOAD_BYTES)] = 0
    bits: ValueBits | None = None
    order: Literal["rows", "channels", "mask"] | None = None
    shift: Annotated[int, Meta(ge=0, le=30)] = 0


def group_size(header: TensorHeader, codec: CodecName) -> int:
    """Elements that share a scale: a token in int8, else :data:`GROUP`."""
    if codec != "int8":
        return GROUP
    inner = innermost(header)
    return inner if inner in TOKEN_GROUPS else ODD_GROUP


def innermost(header: TensorHeader) -> int:
    """Size of the dimension whose elements follow each other; 1 for a scalar."""
    return header.sent_shape[header.sent_order[-1]] if header.shape else 1


def sent_elements(header: TensorHeader) -> int:
    """Distinct elements of the tensor: those that travel."""
    count = 1
    for size in header.sent_shape:
        count *= size
    return count


def check_coding(header: TensorHeader, coding: Coding, size: int) -> None:
    """Raise RemoteProtocolError unless a payload of ``size`` bytes can be what header and coding describe.

    To be called before memory is allocated for it.
    """
    check_header(header)
    _demand(sent_elements(header) > 0, "a tensor without elements is not encoded")
    _demand(header.dtype in FLOATING, f"a tensor of {header.dtype} is not encoded")
    _demand(sum(section.stored for section in coding.sections) == size, f"it came with {size} bytes")
    _demand(all(section.stored <= section.raw for section in coding.sections), "a section grows")
    lengths = tuple(section.raw for section in coding.sections)
    if coding.codec == "topk":
        _check_topk(header, coding, lengths)
        return
    plain = (coding.kept, coding.bits, coding.order, coding.shift) == (0, None, None, 0)
    _demand(plain, f"{coding.codec} keeps every element")
    _demand(lengths == _dense_lengths(header, coding.codec), "its sections have other lengths")


def _dense_lengths(header: TensorHeader, codec: CodecName) -> tuple[int, ...]:
    count = sent_elements(header)
    match codec:
        case "bf16":
            return (2 * count,)
        case "bf16z":
            return (count, count)
        case _:
            groups = -(-count // group_size(header, codec))
            return (SCALE_BYTES * groups, groups * group_size(header, codec))


def _check_topk(header: TensorHeader, coding: Coding, lengths: tuple[int, ...]) -> None:
    count, kept = sent_elements(header), coding.kept
    _demand(coding.bits is not None and coding.order is not None, "topk does not say how it was written")
    _demand(0 < kept <= count, f"it keeps {kept} of {count} elements")
    _demand(header.elements == count, "topk repeats no element")
    values = value_lengths(kept, coding.bits or 16)
    if coding.order == "mask":
        _demand(coding.shift == 0 and lengths == values, "its sections have other lengths")
        return
    _demand(len(lengths) == 2 + len(values) and lengths[2:] == values, "its sections have other lengths")
    skips = lengths[0] - kept
    _demand(0 <= skips <= count // (SKIP << coding.shift), "its gaps do not fit the tensor")
    _demand(lengths[1] == low_bytes(kept, coding.shift), "its sections have other lengths")


def value_lengths(kept: int, bits: ValueBits) -> tuple[int, ...]:
    """Bytes of the sections of ``kept`` values: bfloat16, or scales and one symbol a byte."""
    return (2 * kept,) if bits == 16 else (SCALE_BYTES * -(-kept // GROUP), kept)


def low_bytes(kept: int, shift: int) -> int:
    """Bytes of the low ``shift`` bits of ``kept`` gaps, one plane of bits after the other."""
    return shift * -(-kept // 8)


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RemoteProtocolError(f"an encoded tensor was refused: {otherwise}")
