"""Golden bytes of signed records. The file is added to, never edited: fields are appended, with defaults."""

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from swarm.testing.manifests import sample_manifest
from swarm.wire.codecs import CodecSpec, Policy
from swarm.wire.records.blobs import Blob, TensorBlob
from swarm.wire.records.manifest import Dataset, Group, Manifest, Optimizer, Schedule
from swarm.wire.records.plan import Plan, StagePlan
from swarm.wire.records.state import JobSnapshot, StateTensor
from swarm.wire.records.transforms import Noise, Normalize, RandomHorizontalFlip

VECTORS = json.loads((Path(__file__).parent / "records_v1.json").read_text("utf-8"))

FIRST = sample_manifest()
GROUPED = replace(
    FIRST,
    optimizer=Optimizer(
        kind="adam",
        lr=0.5,
        schedule=Schedule(kind="step", warmup=2, floor=0.0, every=3, factor=0.5),
        groups=(
            Group(names=("*.bias",), most_dimensions=64, weight_decay=0.0, lr_scale=1.0),
            Group(names=("*",), most_dimensions=1, weight_decay=None, lr_scale=0.25),
        ),
    ),
    frozen=("b",),
)
COMPRESSED = replace(FIRST, policy=Policy("adatopk", CodecSpec("topk", 30_000, 4), 100.0))
PLAN = Plan(
    format=1,
    job="j" * 52,
    generation=2,
    step=3,
    stages=(
        StagePlan(
            first=0,
            last=4,
            evaluation=(0, 1),
            holder="h" * 32,
            incarnation=1,
            depth=2,
            memory=1000,
            seconds=0.5,
        ),
    ),
    explanation=("1 stage on 1 of 1 peer",),
)
SAMPLES: dict[str, Manifest | Plan | JobSnapshot] = {
    "plan": PLAN,
    "plan, recomputing": replace(PLAN, stages=(replace(PLAN.stages[0], recompute=True),)),
    "plan, from a line on": replace(PLAN, state=Blob(size=9, blocks=("s" * 52,))),
    "job snapshot": JobSnapshot(
        format=1,
        step=120,
        tensors=(
            StateTensor("value", TensorBlob("w", "float32", (2,), Blob(size=8, blocks=("b" * 52,)))),
            StateTensor("step", TensorBlob("w", "float32", (), Blob(size=4, blocks=("c" * 52,)))),
        ),
    ),
    "manifest": FIRST,
    "manifest, groups and frozen": GROUPED,
    "manifest, weights for one peer": replace(FIRST, export_to=("e" * 32,)),
    "manifest, compressed": COMPRESSED,
    "manifest, deadline": replace(FIRST, policy=Policy("tolerant")),
    "manifest, validating": replace(FIRST, validate_every=50, validate_batches=2),
    "manifest, bf16": replace(FIRST, precision="bf16"),
    "manifest, transforms": replace(
        FIRST,
        dataset=Dataset(
            FIRST.dataset.samples,
            FIRST.dataset.fields,
            ((RandomHorizontalFlip(), Normalize(mean=(0.5,), std=(2.0,)), Noise(std=0.1)),),
        ),
    ),
    "manifest, an average": replace(FIRST, optimizer=replace(FIRST.optimizer, ema=0.999)),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_record_has_exactly_its_golden_bytes(name: str) -> None:
    *older, newest = VECTORS[name]
    assert msgspec.msgpack.encode(SAMPLES[name]) == bytes.fromhex(newest)
    for golden in (*older, newest):
        assert msgspec.msgpack.decode(bytes.fromhex(golden), type=type(SAMPLES[name])) == SAMPLES[name]


def test_every_record_has_a_vector() -> None:
    assert set(SAMPLES) == set(VECTORS)
