"""Top-k with gap-coded positions: the largest entries of an activation, and its gradient on the same mask
(D8).

The boundary is the differentiable operator ``x * mask(x)``: selecting entries of the gradient on their own is
not its derivative, and training does not survive it (Rudakov et al., arXiv 2401.07788;
``benchmarks/convergence.py``).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Literal

import torch

from swarm.compress.codec import Arrived, Codec, Mask, Place, Rebuilt, Request, Taken, as_bytes, from_bytes
from swarm.compress.gaps import decode_gaps, encode_gaps, shift_for
from swarm.compress.groups import dequantise, grouped, quantise
from swarm.compress.integers import narrowed
from swarm.compress.layout import DTYPES, NAMES, flatten, in_float64, unflatten
from swarm.compress.sections import Bytes, Part
from swarm.compress.selection import largest
from swarm.compress.staging import leave
from swarm.errors import RemoteProtocolError
from swarm.wire.codecs import entries_kept
from swarm.wire.coding import GROUP, Coding, ValueBits, innermost
from swarm.wire.tensors import TensorHeader, dense_strides

_TOPS: Final = {8: 127, 4: 7}
"""Largest symbol by bits of a value."""

_WORTH: Final = 0.97
"""Channels are the order of choice where they save at least this much: putting entries in order costs
time."""

_CHANNEL_BITS: Final = 8
"""What a change of density from one channel to the next costs an entropy coder that adapts slowly."""


class TopK(Codec):
    """Keeps ``kept`` entries of a million, values in ``bits``; a gradient goes by its activation's mask."""

    def __init__(self, kept: int, bits: ValueBits) -> None:
        self._kept = kept
        self._bits: ValueBits = bits

    def take_apart(self, tensor: torch.Tensor, request: Request) -> Taken | None:
        """None for a gradient without a mask, a tensor that repeats elements, or one that is not finite."""
        if request.gradient:
            return None if request.mask is None else self._gradient(tensor, request, request.mask)
        header, flat = flatten(tensor)
        if header.elements != flat.numel() or not flat.numel():
            return None
        kept = entries_kept(self._kept, flat.numel())
        rows = largest(flat, kept, seed=request.seed)
        if rows is None:
            return None
        width = innermost(header)
        order, places, positions = _ordered(rows, flat.numel(), width)
        mask = Mask(positions=positions, shape=tuple(tensor.shape), order=header.sent_order)
        values = self._values(flat[positions], None)
        if values is None:
            return None
        shift = shift_for(flat.numel(), kept)
        numbers = leave(places)

        def parts() -> tuple[Part, ...]:
            high, low = encode_gaps(numbers().numpy(), shift)
            return (Part(data=high, entropy=True), Part(data=low, entropy=False), *values())

        return Taken(
            header=header, parts=parts, kept=kept, bits=self._bits, order=order, shift=shift, mask=mask
        )

    def _gradient(self, tensor: torch.Tensor, request: Request, mask: Mask) -> Taken | None:
        if tuple(tensor.shape) != mask.shape or not bool(torch.isfinite(tensor).all()):
            return None
        flat = tensor.detach().permute(mask.order).reshape(-1)
        generator = torch.Generator(flat.device).manual_seed(request.seed)
        values = self._values(flat[mask.positions], generator)
        if values is None:
            return None
        strides = dense_strides(mask.shape, mask.order)
        header = TensorHeader(NAMES[tensor.dtype], mask.shape, strides)  # type: ignore[arg-type]
        kept = mask.positions.numel()
        return Taken(header=header, parts=values, kept=kept, bits=self._bits, order="mask")

    def _values(
        self, values: torch.Tensor, generator: torch.Generator | None
    ) -> Callable[[], tuple[Part, ...]] | None:
        """None where a value is beyond what its bits can say."""
        if self._bits not in _TOPS:
            rounded = values.to(torch.bfloat16)
            data = as_bytes(rounded)
            return (lambda: (Part(data=data(), entropy=False),)) if bool(rounded.isfinite().all()) else None
        found = quantise(grouped(values, GROUP), top=_TOPS[self._bits], generator=generator)
        if found is None:
            return None
        scales, symbols = (as_bytes(part) for part in found)
        count = values.numel()
        return lambda: (Part(data=scales(), entropy=False), Part(data=symbols()[:count], entropy=True))

    def read(self, arrived: Arrived) -> Arrived:
        """Decode the positions. Raises RemoteProtocolError for positions outside of the tensor."""
        header, coding, sections = arrived.header, arrived.coding, arrived.sections
        if coding.order == "mask":
            return arrived
        places = decode_gaps(
            sections[0], sections[1], kept=coding.kept, shift=coding.shift, count=header.elements
        )
        if coding.order == "channels":
            width = innermost(header)
            height = header.elements // width
            places = places % height * width + places // height
        return replace(arrived, sections=sections[2:], positions=places)

    def put_together(self, arrived: Arrived, place: Place) -> Rebuilt:
        """The tensor with zeros where nothing was kept, and its mask.

        Raises RemoteProtocolError for values out of range, or a gradient that its mask does not fit.
        """
        header = arrived.header
        values = _values_of(arrived.coding, arrived.sections, place.device)
        if arrived.positions is None:
            mask = _mask_of(header, values.numel(), place.mask)
            return Rebuilt(tensor=_scattered(header, mask.positions, values))
        positions = torch.from_numpy(arrived.positions).to(place.device)
        mask = Mask(positions=positions, shape=header.shape, order=header.sent_order)
        return Rebuilt(tensor=_scattered(header, positions, values), mask=mask)


def _ordered(
    rows: torch.Tensor, count: int, width: int
) -> tuple[Literal["rows", "channels"], torch.Tensor, torch.Tensor]:
    """The cheaper order of the entries; their places in that order, ascending; and their positions by rows.

    Entries that crowd in a few channels are close together there. The bound of either order follows from its
    counts: log2 C(n, k) over all, or summed over the channels.
    """
    height = count // width
    if width == 1 or height == 1 or not _crowded(rows, height, width):
        return "rows", rows, rows
    chosen = torch.zeros(count, dtype=torch.bool, device=rows.device)
    chosen[rows] = True
    places = chosen.view(height, width).t().reshape(-1).nonzero().squeeze(1)
    return "channels", places, places % height * width + places // height


def _crowded(rows: torch.Tensor, height: int, width: int) -> bool:
    counts = in_float64(torch.bincount(rows % width, minlength=width))
    apart = float(_bits_of_choice(counts, height).sum())
    together = float(_bits_of_choice(counts.sum(), height * width))
    return apart + _CHANNEL_BITS * width < _WORTH * together


def _bits_of_choice(kept: torch.Tensor, among: int) -> torch.Tensor:
    """Bits that say which ``kept`` of ``among`` were chosen: n H(k / n), the bound of log2 C(n, k)."""
    share = (kept / among).clamp(1e-12, 1 - 1e-12)
    return -among * (share * share.log2() + (1 - share) * (1 - share).log2())


def _values_of(coding: Coding, sections: Sequence[Bytes], device: torch.device) -> torch.Tensor:
    bits = coding.bits or 16
    if bits not in _TOPS:
        return from_bytes(sections[0], torch.bfloat16, device).float()
    symbols = from_bytes(sections[1], torch.int8, device)
    top = _TOPS[bits]
    if symbols.numel() and not -top <= int(symbols.min()) <= int(symbols.max()) <= top:
        raise RemoteProtocolError(f"values of {bits} bits have symbols of more")
    rows = torch.nn.functional.pad(symbols, (0, -symbols.numel() % GROUP)).view(-1, GROUP)
    scales = from_bytes(sections[0], torch.bfloat16, device)
    return dequantise(scales, rows).view(-1)[: symbols.numel()]


def _mask_of(header: TensorHeader, kept: int, mask: Mask | None) -> Mask:
    """The mask of a gradient that came; raises RemoteProtocolError where its activation had none like it."""
    if mask is None or mask.shape != header.shape or mask.order != header.sent_order:
        raise RemoteProtocolError("a gradient came for a mask that its activation did not have")
    if mask.positions.numel() != kept:
        raise RemoteProtocolError("a gradient has another number of entries than its activation")
    return mask


def _scattered(header: TensorHeader, positions: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    elements = torch.zeros(header.elements, dtype=DTYPES[header.dtype], device=values.device)
    elements[positions] = narrowed(values, elements.dtype)
    return unflatten(header, elements)
