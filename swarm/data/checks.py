"""Whether the sizes in records of tensors and datasets fit each other; without numpy, for any node."""

import math

from swarm.errors import RemoteProtocolError
from swarm.wire.limits import MAX_BLOCK_BYTES
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.manifest import Dataset, Field
from swarm.wire.tensors import ITEM_BYTES


def check_tensor(tensor: TensorBlob) -> None:
    """Raise RemoteProtocolError unless the blob has as many bytes as type and shape call for."""
    if math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype] != tensor.blob.size:
        raise RemoteProtocolError(f"{tensor.name} has {tensor.blob.size} bytes, not what its shape calls for")


def check_dataset(dataset: Dataset) -> None:
    """Raise RemoteProtocolError unless every field has the bytes and blocks that its numbers call for."""
    for field in dataset.fields:
        item = item_bytes(field)
        if item * field.per_block > MAX_BLOCK_BYTES or item == 0:
            raise RemoteProtocolError("a dataset's items do not fit its blocks")
        if field.blob.size != item * dataset.samples:
            raise RemoteProtocolError("a dataset has other bytes than its samples call for")
        if len(field.blob.blocks) != -(-dataset.samples // field.per_block):
            raise RemoteProtocolError("a dataset has other blocks than its samples call for")


def item_bytes(field: Field) -> int:
    """Bytes of one item of ``field``."""
    return math.prod(field.shape) * ITEM_BYTES[field.dtype]
