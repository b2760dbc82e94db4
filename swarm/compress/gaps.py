"""Ascending positions as coded gaps (decision D8): close to the entropy of a random choice of so many places.

A gap is the number of elements passed over before an entry. Its high part is one byte, whose unequal
frequencies zstandard's entropy coder uses up; its low bits are as good as random and travel as planes of
bits.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from swarm.compress.sections import Bytes
from swarm.errors import RemoteProtocolError
from swarm.wire.coding import SKIP

_MEAN_HIGH: Final = 24
"""High parts have about this mean: enough values to be told apart finely, few enough for one byte."""

_MAX_SHIFT: Final = 30


def shift_for(count: int, kept: int) -> int:
    """How many low bits of a gap travel as they are, for ``kept`` entries among ``count`` elements."""
    mean = count / max(kept, 1)
    return min(max(0, math.ceil(math.log2(mean / (2 * _MEAN_HIGH)))), _MAX_SHIFT) if mean > 1 else 0


def encode_gaps(positions: NDArray[np.int64], shift: int) -> tuple[Bytes, Bytes]:
    """High parts and low bits of the gaps between ascending ``positions``."""
    gaps = np.diff(positions, prepend=-1) - 1
    high = gaps >> shift
    skips = high // SKIP
    symbols = (high - skips * SKIP).astype(np.uint8)
    if skips.any():
        places = np.repeat(np.arange(symbols.size), skips)
        symbols = np.insert(symbols, places, np.uint8(SKIP))
    planes = [np.packbits((gaps >> bit & 1).astype(np.uint8)) for bit in range(shift)]
    return symbols, np.concatenate(planes) if planes else np.empty(0, np.uint8)


def decode_gaps(high: Bytes, low: Bytes, *, kept: int, shift: int, count: int) -> NDArray[np.int64]:
    """The positions. Raises RemoteProtocolError unless they are ``kept`` places among ``count`` elements.

    The lengths of ``high`` and ``low`` must have been checked (:func:`swarm.wire.coding.check_coding`).
    """
    entries = high != SKIP
    if int(entries.sum()) != kept or (high.size and not entries[-1]):
        raise RemoteProtocolError("the gaps of an encoded tensor are not as many as its entries")
    steps = high.astype(np.int64) << shift
    if shift:
        planes = np.unpackbits(low.reshape(shift, -1), axis=1, count=kept)
        bits = np.zeros(kept, np.int64)
        for bit in range(shift):
            bits |= planes[bit].astype(np.int64) << bit
        steps[entries] += bits
    steps[entries] += 1
    if int(steps.max(initial=0)) > count:  # and so their sum stays within 64 bits
        raise RemoteProtocolError("the gaps of an encoded tensor lead beyond its end")
    positions: NDArray[np.int64] = (np.cumsum(steps) - 1)[entries]
    if kept and positions[-1] >= count:
        raise RemoteProtocolError("the gaps of an encoded tensor lead beyond its end")
    return positions
