"""What every codec of boundary tensors is: a pure function of the tensor and a seed (decision D8).

A codec works in two halves, so that the device is free for the next micro-batch while bytes are coded: what
selects and quantises runs on the device thread, what codes bytes (``Taken.parts``,
``swarm.compress.sections``) anywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from swarm.compress.sections import Bytes, Part
from swarm.compress.staging import enter, leave, room
from swarm.wire.coding import Coding, ValueBits
from swarm.wire.tensors import TensorHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """The entries of an activation that top-k kept: its gradient has the same ones, and no others."""

    positions: torch.Tensor
    """int64, in the order in which values are sent; they count elements in ``order``."""
    shape: tuple[int, ...]
    order: tuple[int, ...]
    """The activation's dimensions from the outermost in memory to the innermost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How one tensor is to be taken apart."""

    seed: int
    gradient: bool
    """Whether it is a gradient: those are rounded at random, without bias."""
    mask: Mask | None = None
    """For a gradient: the mask of its activation, where that had one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A tensor that was taken apart on its device."""

    header: TensorHeader
    parts: Callable[[], Sequence[Part]]
    """Codes the bytes; may run on any thread."""
    kept: int = 0
    bits: ValueBits | None = None
    order: Literal["rows", "channels", "mask"] | None = None
    shift: int = 0
    mask: Mask | None = None
    """What the gradient of this activation is to be sent with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """A tensor as it arrived, and the mask that its gradient goes back with."""

    tensor: torch.Tensor
    mask: Mask | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """A tensor as it came: header, coding and the sections' lengths have been checked against each other."""

    header: TensorHeader
    coding: Coding
    sections: Sequence[Bytes]
    positions: NDArray[np.int64] | None = None
    """Of top-k's entries, once read; see :class:`Mask`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tensor is rebuilt, and the mask of its activation if it is a gradient sent with one."""

    device: torch.device
    mask: Mask | None = None


class Codec(Protocol):
    """Takes tensors of floating point apart and rebuilds them. Runs on the device thread."""

    def take_apart(self, tensor: torch.Tensor, request: Request) -> Taken | None:
        """``tensor`` for a link; None where this codec cannot send it faithfully, such as one with a NaN."""
        ...

    def read(self, arrived: Arrived) -> Arrived:
        """Decode what takes no device; may run on any thread. Raises RemoteProtocolError as
        ``put_together``."""
        return arrived

    def put_together(self, arrived: Arrived, place: Place) -> Rebuilt:
        """The tensor, with the layout that the encoder saw.

        Raises RemoteProtocolError where the sections are not what this codec writes.
        """
        ...


def as_bytes(tensor: torch.Tensor) -> Callable[[], Bytes]:
    """What gives the memory of ``tensor`` as bytes; it may wait for them, and be called on any thread."""
    there = leave(tensor.detach().contiguous().view(-1))

    def data() -> Bytes:
        found: Bytes = there().view(torch.uint8).numpy()
        return found

    return data


def from_bytes(data: Bytes, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """The tensor of one dimension whose memory :func:`as_bytes` gave; a copy."""
    memory = room(data.size, torch.uint8, device)
    memory.numpy()[...] = data
    return enter(memory.view(dtype), device)
