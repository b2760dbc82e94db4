"""int8 with a scale per token; int6, int5 and int4 in rotated groups of 64 (decision D8).

The rotation spreads an outlier over its group, so that it does not cost the others their resolution.
"""

import torch

from swarm.compress.codec import Arrived, Codec, Place, Rebuilt, Request, Taken, as_bytes, from_bytes
from swarm.compress.groups import dequantise, grouped, hadamard, quantise
from swarm.compress.layout import DTYPES, flatten, unflatten
from swarm.compress.sections import Part
from swarm.errors import RemoteProtocolError
from swarm.wire.coding import GROUP, SYMBOL_BITS, CodecName, group_size, sent_elements


class Integers(Codec):
    """Symmetric quantisation to the bits of ``name``."""

    def __init__(self, name: CodecName) -> None:
        self._name: CodecName = name
        self._top = 2 ** (SYMBOL_BITS[name] - 1) - 1
        self._rotates = name != "int8"

    def take_apart(self, tensor: torch.Tensor, request: Request) -> Taken | None:
        """``tensor`` as scales and symbols; None where it has an element that is not finite."""
        header, flat = flatten(tensor)
        groups = grouped(flat, group_size(header, self._name))
        if self._rotates:
            groups = groups @ hadamard(GROUP, groups.device)
        generator = torch.Generator(flat.device).manual_seed(request.seed) if request.gradient else None
        found = quantise(groups, top=self._top, generator=generator)
        if found is None:
            return None
        scales, symbols = (as_bytes(part) for part in found)

        def parts() -> tuple[Part, ...]:
            return (Part(data=scales(), entropy=False), Part(data=symbols(), entropy=True))

        return Taken(header=header, parts=parts)

    def put_together(self, arrived: Arrived, place: Place) -> Rebuilt:
        """The tensor as near as its symbols say. Raises RemoteProtocolError for symbols out of range."""
        header = arrived.header
        scales = from_bytes(arrived.sections[0], torch.bfloat16, place.device)
        symbols = from_bytes(arrived.sections[1], torch.int8, place.device)
        if symbols.numel() and not -self._top <= int(symbols.min()) <= int(symbols.max()) <= self._top:
            raise RemoteProtocolError(f"a tensor in {self._name} has symbols of more bits")
        groups = dequantise(scales, symbols.view(scales.numel(), -1))
        if self._rotates:
            groups = groups @ hadamard(GROUP, groups.device)
        elements = groups.view(-1)[: sent_elements(header)]
        return Rebuilt(tensor=unflatten(header, narrowed(elements, DTYPES[header.dtype])))


def narrowed(elements: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``elements`` as ``dtype``; what rounding carried beyond its range is its largest number."""
    limit = torch.finfo(dtype)
    return elements.clamp(limit.min, limit.max).to(dtype) if dtype == torch.float16 else elements.to(dtype)
