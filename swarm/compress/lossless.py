"""The codec that changes nothing: the elements as they are, fp32 or any other type (policy ``none``)."""

import torch

from swarm.compress.codec import Codec, Encoded
from swarm.compress.layout import dump, rebuild
from swarm.wire.tensors import TensorHeader


class Lossless(Codec):
    """Raw elements. The payload may be the tensor's own memory: see :func:`swarm.compress.layout.dump`."""

    def encode(self, tensor: torch.Tensor, *, seed: int) -> Encoded:
        """The elements of ``tensor`` as bytes, without a copy where they lie in order."""
        header, payload = dump(tensor)
        return Encoded(header=header, payload=payload)

    def decode(
        self, header: TensorHeader, payload: bytes | bytearray | memoryview, *, device: torch.device
    ) -> torch.Tensor:
        """The tensor; raises RemoteProtocolError where the payload does not fit the header."""
        return rebuild(header, payload, device)
