"""bfloat16: half the bytes of float32, with its range; the high bytes, mostly exponents, also entropy-coded
(D8)."""

import numpy as np
import torch

from swarm.compress.codec import Arrived, Codec, Place, Rebuilt, Request, Taken, as_bytes, from_bytes
from swarm.compress.layout import DTYPES, flatten, unflatten
from swarm.compress.sections import Bytes, Part


class BFloat(Codec):
    """Rounds to bfloat16; with ``split`` its high bytes are a section of their own, entropy-coded."""

    def __init__(self, *, split: bool) -> None:
        self._split = split

    def take_apart(self, tensor: torch.Tensor, request: Request) -> Taken | None:
        """``tensor`` rounded to nearest; None where that makes a finite number infinite."""
        header, flat = flatten(tensor)
        rounded = flat.to(torch.bfloat16)
        if bool(rounded.isinf().any()) and bool((rounded.isinf() & flat.isfinite()).any()):
            return None
        data = as_bytes(rounded)
        return Taken(header=header, parts=lambda: self._parts(data()))

    def put_together(self, arrived: Arrived, place: Place) -> Rebuilt:
        """The rounded tensor in its own type."""
        sections, header = arrived.sections, arrived.header
        data = sections[0] if not self._split else np.stack([sections[1], sections[0]], axis=1).reshape(-1)
        elements = from_bytes(data, torch.bfloat16, place.device).to(DTYPES[header.dtype])
        return Rebuilt(tensor=unflatten(header, elements))

    def _parts(self, data: Bytes) -> tuple[Part, ...]:
        if not self._split:
            return (Part(data=data, entropy=False),)
        pairs = data.reshape(-1, 2)
        return (
            Part(data=np.ascontiguousarray(pairs[:, 1]), entropy=True),
            Part(data=np.ascontiguousarray(pairs[:, 0]), entropy=False),
        )
