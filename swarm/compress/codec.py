"""What every codec of boundary tensors is: a pure function of the tensor and a seed (decision D8)."""

from dataclasses import dataclass
from typing import Protocol

import torch

from swarm.wire.tensors import TensorHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A tensor ready for a link: its header, and the payload that the header describes."""

    header: TensorHeader
    payload: memoryview


class Codec(Protocol):
    """Takes tensors apart for a link and rebuilds them behind it. Runs on the device thread."""

    def encode(self, tensor: torch.Tensor, *, seed: int) -> Encoded:
        """``tensor`` for a link; equal tensors and seeds give equal bytes."""
        ...

    def decode(
        self, header: TensorHeader, payload: bytes | bytearray | memoryview, *, device: torch.device
    ) -> torch.Tensor:
        """The tensor in ``payload``, on ``device``, in the layout that the encoder saw.

        Raises RemoteProtocolError where header and payload are not what this codec writes.
        """
        ...
