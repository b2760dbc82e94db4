"""Sizes of encoded tensors, before there is a tensor (decision D8).

Counted per element of float32. Of top-k a gradient is shorter than its activation: it needs no positions.
Positions take their entropy H(p) / p bits an entry and 3% more, as ``benchmarks/codec.py`` measures; what
quantised codecs save by entropy coding depends on the tensor and is left out, so that a prediction is never
too low by much.
"""

import math
from typing import Final

from swarm.wire.codecs import MILLION, CodecSpec
from swarm.wire.coding import GROUP, SCALE_BYTES, SYMBOL_BITS, ValueBits

DENSE_BITS: Final = 32

_POSITIONS: Final = 1.03
"""Bits of coded positions by their entropy."""

_HIGH_BYTE_BITS: Final = 4.0
"""Entropy-coded high byte of a bfloat16; activations measure 2.7 to 4."""

_MOST: Final = 0.9
"""Shares from here to 1 take more bits for positions than they save in values."""


def bits_per_element(spec: CodecSpec, *, backward: bool = False) -> float:
    """Bits of an element of float32 in ``spec``, about; of its gradient where ``backward``."""
    match spec.codec:
        case "fp32":
            return DENSE_BITS
        case "bf16":
            return 16.0
        case "bf16z":
            return 8.0 + _HIGH_BYTE_BITS
        case "topk" if backward:
            return spec.kept / MILLION * _value_bits(spec.bits)
        case "topk":
            return topk_bits(spec.kept / MILLION, spec.bits)
        case name:
            return SYMBOL_BITS[name] + (8 * SCALE_BYTES / GROUP if name != "int8" else 0.0)


def topk_bits(share: float, bits: ValueBits) -> float:
    """Bits of an element where ``share`` of them is kept, with values of ``bits``."""
    if share >= 1:
        return _value_bits(bits)
    entropy = -share * math.log2(share) - (1 - share) * math.log2(1 - share) if share > 0 else 0.0
    return _POSITIONS * entropy + share * _value_bits(bits)


def topk_within(budget: float, bits: ValueBits) -> CodecSpec:
    """The top-k that keeps the largest share in ``budget`` bits an element, and one of a million at least."""
    if budget >= _value_bits(bits):
        return CodecSpec("topk", MILLION, bits)
    low, high = 1, round(_MOST * MILLION)
    while low < high:
        middle = (low + high + 1) // 2
        if topk_bits(middle / MILLION, bits) <= budget:
            low = middle
        else:
            high = middle - 1
    return CodecSpec("topk", low, bits)


def _value_bits(bits: ValueBits) -> float:
    return bits + (8 * SCALE_BYTES / GROUP if bits < 16 else 0.0)
