"""What a hostile author or coordinator may sign, and what a stage may send: refused, or harmless."""

import contextlib
import math
from typing import Any

import msgspec
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from swarm.compress.layout import rebuild
from swarm.errors import RemoteProtocolError
from swarm.services.job_check import check_manifest, check_plan, check_weights
from swarm.services.job_files import KeptJob
from swarm.testing.manifests import sample_manifest
from swarm.wire.records.blobs import Blob
from swarm.wire.records.manifest import Manifest
from swarm.wire.records.outcome import Outcome
from swarm.wire.records.plan import Plan, StagePlan
from swarm.wire.tensors import TensorHeader

BLOB = Blob(size=4, blocks=("q" * 52,))
MANIFEST = sample_manifest()
STAGE = StagePlan(
    first=0, last=1, evaluation=(), holder="d" * 32, incarnation=1, depth=1, memory=1, seconds=0.5
)
PLAN = Plan(format=1, job="j" * 52, generation=1, step=0, stages=(STAGE,), explanation=("why",))
KEPT = KeptJob(
    format=1,
    envelope=b"x",
    state="done",
    sentence="",
    since=0.0,
    step=1,
    losses=(1.0,),
    held_out=0.5,
    weights=(),
    plan=PLAN,
    cancellation=b"",
    outcome=b"x",
)
OUTCOME = Outcome(
    format=1, job="j" * 52, state="failed", sentence="why", wall=1.0, step=2, held_out=0.5, weights=()
)

odd = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=20)
    | st.binary(max_size=20)
)


def places(value: Any, path: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where something in a decoded record can be replaced."""
    found = [path] if path else []
    if isinstance(value, list):
        for index, item in enumerate(value):
            found += places(item, (*path, index))
    return found


@settings(max_examples=400, deadline=None)
@given(data=st.data(), record=st.sampled_from([MANIFEST, PLAN, KEPT, OUTCOME]))
def test_a_record_with_one_thing_changed_is_read_or_refused(data: st.DataObject, record: Any) -> None:
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    *way, last = data.draw(st.sampled_from(places(decoded)))
    inner = decoded
    for index in way:
        inner = inner[index]
    inner[last] = data.draw(odd | st.lists(odd, max_size=4))
    with contextlib.suppress(msgspec.DecodeError):
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(decoded), type=type(record))
        assert isinstance(again, type(record))


def numbers(value: Any) -> list[float]:
    if isinstance(value, float):
        return [value]
    return [found for item in value for found in numbers(item)] if isinstance(value, list | tuple) else []


def test_the_records_to_be_changed_fit_together() -> None:
    check_manifest(MANIFEST)
    check_plan(PLAN, MANIFEST)


@settings(max_examples=600, deadline=None)
@given(data=st.data(), record=st.sampled_from([MANIFEST, PLAN, OUTCOME]))
def test_what_was_read_has_no_number_that_is_none_and_fits_together_or_is_refused(
    data: st.DataObject, record: Any
) -> None:
    decoded = msgspec.msgpack.decode(msgspec.msgpack.encode(record))
    *way, last = data.draw(st.sampled_from(places(decoded)))
    inner = decoded
    for index in way:
        inner = inner[index]
    inner[last] = data.draw(odd | st.sampled_from([math.nan, math.inf, 2**40, 2**53 - 1, 0, -1, 1.5]))
    try:
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(decoded), type=type(record))
    except msgspec.DecodeError:
        return
    assert all(map(math.isfinite, numbers(msgspec.to_builtins(again))))
    with contextlib.suppress(RemoteProtocolError):
        match again:
            case Manifest():
                check_manifest(again)
            case Plan():
                check_plan(again, MANIFEST)
            case Outcome():
                check_weights(again.weights, MANIFEST)


sizes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
steps = st.lists(st.integers(0, 70), max_size=4).map(tuple)


@settings(max_examples=800, deadline=None)
@given(
    dtype=st.sampled_from(["float32", "bfloat16", "bool", "int64", "uint8", "float16"]),
    shape=sizes,
    strides=steps,
    offset=st.integers(0, 63),
    excess=st.sampled_from([0, 0, 0, 1, -1]),
    fill=st.integers(0, 255),
)
def test_a_payload_becomes_exactly_its_tensor_or_is_refused(
    dtype: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int, excess: int, fill: int
) -> None:
    header = TensorHeader(dtype, shape, strides, offset)
    try:
        size = max(header.payload_bytes + excess, 0)
    except ValueError:
        size = 0
    try:
        tensor = rebuild(header, bytes([fill]) * size, torch.device("cpu"))
    except RemoteProtocolError:
        return
    assert tuple(tensor.shape) == shape
    assert tensor.stride() == strides
    assert (
        tensor.untyped_storage().nbytes() >= (tensor.storage_offset() + header.extent) * tensor.element_size()
    )
