"""A manifest for tests that need one and do not care what it says."""

from typing import Any, Final

import msgspec

from swarm.wire.records.blobs import Blob, TensorBlob
from swarm.wire.records.manifest import Dataset, Field, Manifest, Optimizer, Schedule

_BLOCK: Final = ("q" * 52,)
_BLOB: Final = Blob(size=4, blocks=_BLOCK)
_MANIFEST: Final = Manifest(
    format=1,
    swarm="a" * 32,
    name="gpt",
    created=1.0,
    graph=_BLOB,
    evaluation=_BLOB,
    tensors=(TensorBlob(name="b", dtype="float32", shape=(1,), blob=_BLOB),),
    state=(("a", "b"),),
    dataset=Dataset(6, (Field("uint8", (4,), 6, Blob(size=24, blocks=_BLOCK)),)),
    held_out=Dataset(2, (Field("uint8", (4,), 2, Blob(size=8, blocks=_BLOCK)),)),
    optimizer=Optimizer(kind="sgd", lr=0.1, schedule=Schedule(kind="constant", warmup=0, floor=0.0)),
    micro_batch_size=2,
    micro_batches=3,
    steps=10,
    seed=0,
    tokens_per_sample=5,
    council=("c" * 32,),
    patience=0.0,
)


def sample_manifest(**changes: Any) -> Manifest:
    """One whose parts fit each other; keywords replace its fields."""
    return msgspec.structs.replace(_MANIFEST, **changes)
