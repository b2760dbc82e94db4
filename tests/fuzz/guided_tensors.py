"""Guided targets: a tensor's header with a payload of the length that it calls for, plain and encoded."""

import zlib

import msgspec
import torch
from guided_target import Target, refusing

from swarm.compress.codec import Mask, Place
from swarm.compress.ladder import Encoded, put_together, read
from swarm.compress.layout import dump, rebuild
from swarm.errors import RemoteProtocolError
from swarm.wire.coding import Coding, check_coding
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


def parse_coded(data: bytes) -> None:
    """Header, coding and the first bytes of the payload; the rest of it is zeros, and its checksum right."""
    with refusing(RemoteProtocolError):
        try:
            header, coding, start = msgspec.msgpack.decode(data, type=tuple[TensorHeader, Coding, bytes])
        except (msgspec.DecodeError, RecursionError) as error:
            raise RemoteProtocolError(str(error)) from None
        size = sum(section.stored for section in coding.sections)
        if size > MOST_BYTES:
            return
        check_coding(header, coding, size)
        if header.payload_bytes > MOST_BYTES or any(s.raw > MOST_BYTES for s in coding.sections):
            return
        payload = start[:size].ljust(size, b"\0")
        coding = msgspec.structs.replace(coding, checksum=zlib.crc32(payload))
        encoded = Encoded(header=header, payload=memoryview(payload), coding=coding)
        kept = torch.arange(min(coding.kept, header.elements))
        mask = Mask(positions=kept, shape=header.shape, order=header.sent_order)
        tensor = put_together(read(encoded), Place(device=CPU, mask=mask)).tensor
        assert tuple(tensor.shape) == header.shape
        assert tensor.stride() == header.strides


TARGETS = {
    "tensors": Target(parse=parse_tensor, packed=1),
    "coded_tensors": Target(parse=parse_coded, packed=0),
}
