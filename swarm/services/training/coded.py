"""Boundary tensors as messages: with what their codec says, and read again in the executor."""

import asyncio

import msgspec

from swarm.compress.ladder import Encoded, read
from swarm.wire.messages.pipeline import BoundaryTensor, CodedTensor


def coded_message(message: BoundaryTensor, encoded: Encoded) -> BoundaryTensor:
    """``message`` with what describes its payload."""
    if encoded.coding is None:
        return msgspec.structs.replace(message, header=encoded.header)
    fields = msgspec.structs.asdict(message) | {"header": encoded.header, "coding": encoded.coding}
    return CodedTensor(**fields)


def reading(message: BoundaryTensor, payload: memoryview) -> object:
    """The payload as the machine keeps it: what arrived, or the task that decodes its bytes."""
    if message.header is None:
        return None
    if not isinstance(message, CodedTensor):
        return Encoded(header=message.header, payload=payload)
    encoded = Encoded(header=message.header, payload=payload, coding=message.coding)
    decoding = asyncio.get_running_loop().run_in_executor(None, read, encoded)
    decoding.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait
    return decoding
