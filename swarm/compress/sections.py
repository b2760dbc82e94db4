"""Sections of an encoded tensor: bytes that are compressed where that pays, behind a checksum (decision
D8)."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from swarm.errors import RemoteProtocolError
from swarm.wire.coding import Coding, Section

Bytes = NDArray[np.uint8]

_LEVEL: Final = 1
"""zstandard's level: its entropy coding is all that is wanted; nothing in a tensor repeats."""

_WINDOW_LOG: Final = 17
"""Matches are no use beyond a block of 128 KiB, so decoders need no larger window."""

_WORTH: Final = 0.97
"""A section is stored compressed where it shrinks at least this much."""

_SAMPLE: Final = 1 << 16
"""Bytes that are compressed first, to see whether the rest is worth it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The bytes of a section before compression; ``entropy`` says whether symbols are unequally likely."""

    data: Bytes
    entropy: bool


def pack(parts: Sequence[Part]) -> tuple[tuple[Section, ...], bytes, int]:
    """Sections, payload and checksum of ``parts``. Equal parts give equal bytes."""
    stored = [_compressed(part) for part in parts]
    sections = tuple(Section(part.data.size, len(data)) for part, data in zip(parts, stored, strict=True))
    payload = b"".join(stored)
    return sections, payload, zlib.crc32(payload)


def unpack(coding: Coding, payload: bytes | bytearray | memoryview) -> list[Bytes]:
    """The sections' bytes.

    The lengths must have been checked (:func:`swarm.wire.coding.check_coding`). Raises RemoteProtocolError
    where the payload is not what was packed.
    """
    view = memoryview(payload).cast("B")
    if zlib.crc32(view) != coding.checksum:
        raise RemoteProtocolError("the checksum of an encoded tensor is wrong")
    found, at = [], 0
    for section in coding.sections:
        stored = view[at : at + section.stored]
        at += section.stored
        found.append(np.frombuffer(_expanded(section, stored), np.uint8))
    return found


def _compressed(part: Part) -> bytes | memoryview:
    plain = memoryview(np.ascontiguousarray(part.data).data).cast("B")
    if not part.entropy or not plain.nbytes:
        return plain
    parameters = zstandard.ZstdCompressionParameters.from_level(_LEVEL, window_log=_WINDOW_LOG)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    if plain.nbytes > 4 * _SAMPLE and len(compressor.compress(plain[:_SAMPLE])) > _WORTH * _SAMPLE:
        return plain
    packed = compressor.compress(plain)
    return packed if len(packed) <= _WORTH * plain.nbytes else plain


def _expanded(section: Section, stored: memoryview) -> bytes | memoryview:
    if section.raw == section.stored:
        return stored
    try:
        facts = zstandard.get_frame_parameters(stored)
        if facts.content_size != section.raw:
            raise RemoteProtocolError("a section of an encoded tensor has another length than it says")
        window = 1 << max(section.raw.bit_length(), _WINDOW_LOG)
        plain = zstandard.ZstdDecompressor(max_window_size=window).decompress(stored, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise RemoteProtocolError(f"a section of an encoded tensor does not decompress: {error}") from None
    if len(plain) != section.raw:
        raise RemoteProtocolError("a section of an encoded tensor has another length than it says")
    return plain
