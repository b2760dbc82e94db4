"""Guided target: a tensor's header with a payload of the length that it calls for."""

import msgspec
import torch
from guided_target import Target, refusing

from swarm.compress.layout import dump, rebuild
from swarm.errors import RemoteProtocolError
from swarm.wire.tensors import TensorHeader, check_header

CPU = torch.device("cpu")
MOST_BYTES = 1 << 20
"""Payloads that are made here; larger ones are judged by their header alone."""


def parse_tensor(data: bytes) -> None:
    """The first byte fills the payload; what was rebuilt is as its header says, and travels again."""
    if not data:
        return
    with refusing(RemoteProtocolError):
        try:
            header = msgspec.msgpack.decode(data[1:], type=TensorHeader)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(str(error)) from None
        check_header(header)
        if header.payload_bytes > MOST_BYTES:
            return
        tensor = rebuild(header, data[:1] * header.payload_bytes, CPU)
        assert tuple(tensor.shape) == header.shape
        assert tensor.stride() == header.strides
        reach = (tensor.storage_offset() + header.extent) * tensor.element_size()
        assert tensor.untyped_storage().nbytes() >= reach
        again = rebuild(*dump(tensor), CPU)
        assert torch.equal(again.nan_to_num(), tensor.nan_to_num())


TARGETS = {"tensors": Target(parse=parse_tensor, packed=1)}
