"""Whether a model's tensors can be listed: a manifest names them all, and so does how a job ended."""

from collections.abc import Sequence
from typing import Final

import msgspec

from swarm.compress.layout import NAMES
from swarm.data.blobs import block_length
from swarm.data.tensors import TENSOR_BLOCKS
from swarm.errors import FailureError
from swarm.graph.cut import trained_uses
from swarm.identity.envelope import MAX_ENVELOPE_BYTES
from swarm.ids import DIGEST_LENGTH
from swarm.schedule.units import format_bytes
from swarm.train.job import CapturedJob
from swarm.wire.limits import KIB
from swarm.wire.records.blobs import Blob, TensorBlob
from swarm.wire.records.manifest import averaged

ROOM: Final = 32 * KIB
"""Bytes for all the rest of a manifest but for its datasets' blocks."""


def require_listable(captured: CapturedJob, *, averages: bool) -> None:
    """Raise FailureError where the list of all tensors, and of averages where they are kept, is too long."""
    tensors = [_listed(name, captured) for name in captured.tensors]
    trained = [captured.train.values[value].name for value in trained_uses(captured.train)]
    kept = [msgspec.structs.replace(_listed(name, captured), name=averaged(name)) for name in trained]
    manifest = _length(tensors) + len(msgspec.msgpack.encode(tuple(captured.state_dict.items())))
    longest = max(manifest, _length([*tensors, *kept]) if averages else 0)
    if longest > MAX_ENVELOPE_BYTES - ROOM:
        blocks = sum(len(tensor.blob.blocks) for tensor in tensors)
        what = f"{len(tensors):,} tensors in {blocks:,} blocks{', and their averages,' if averages else ''}"
        raise FailureError(
            f"the model has {what} whose list takes {format_bytes(longest)}, of at most "
            f"{format_bytes(MAX_ENVELOPE_BYTES - ROOM)}: put tensors of one kind into one, such as those of "
            "all experts, or train a smaller model"
        )


def _listed(name: str, captured: CapturedJob) -> TensorBlob:
    """The entry of a tensor, but for what its blocks are called."""
    tensor = captured.tensors[name]
    length = block_length(tensor.nbytes, tensor.itemsize, most=TENSOR_BLOCKS)
    blob = Blob(size=tensor.nbytes, blocks=("a" * DIGEST_LENGTH,) * -(-tensor.nbytes // length))
    return TensorBlob(name=name, dtype=NAMES[tensor.dtype], shape=tuple(tensor.shape), blob=blob)  # type: ignore[arg-type]


def _length(tensors: Sequence[TensorBlob]) -> int:
    return len(msgspec.msgpack.encode(tensors))
