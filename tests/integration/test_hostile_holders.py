"""A holder whose boundary tensors are not what its plan says: the job ends at once with a sentence that says
whose they were, and whoever received them goes on."""

import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from swarm.compress.codec import Request
from swarm.compress.ladder import Encoded, take_apart
from swarm.compress.layout import DTYPES
from swarm.ids import PeerId, short
from swarm.services.training.author import prepare_job
from swarm.services.training.node import TrainingNode
from swarm.services.training.pipeline import StagePipeline
from swarm.testing.cluster import Cluster, memory_networks
from swarm.testing.sizing import memory_of
from swarm.train.job import TrainingJob
from swarm.wire.codecs import MILLION, CodecSpec
from swarm.wire.coding import Section
from swarm.wire.messages.pipeline import BoundaryTensor

MakeJob = Callable[..., TrainingJob]
LIE_FROM_STEP = 1


def encoded_by(spec: CodecSpec, like: Encoded) -> Encoded:
    tensor = torch.ones(like.header.shape, dtype=DTYPES[like.header.dtype])
    return take_apart(tensor, spec, Request(seed=1, gradient=False)).encode()


def all_entries(honest: Encoded) -> Encoded:
    return encoded_by(CodecSpec("topk", MILLION, 8), honest)


def another_codec(honest: Encoded) -> Encoded:
    return encoded_by(CodecSpec("int8"), honest)


def no_entries(honest: Encoded) -> Encoded:
    assert honest.coding is not None
    coding = replace(
        honest.coding, codec="topk", kept=0, bits=8, order="rows", shift=0, sections=(Section(0, 0),) * 4
    )
    return Encoded(header=honest.header, payload=memoryview(b""), coding=replace(coding, checksum=0))


def another_shape(honest: Encoded) -> Encoded:
    header = honest.header
    turned = replace(header, shape=header.shape[::-1], strides=header.strides[::-1])
    return Encoded(header=turned, payload=honest.payload, coding=honest.coding)


def symbols_at_the_limit(honest: Encoded) -> Encoded:
    """The last section, of symbols, as bytes that no codec writes, behind a right checksum."""
    assert honest.coding is not None
    sections = honest.coding.sections
    begin = honest.payload[: honest.payload.nbytes - sections[-1].stored]
    payload = bytes(begin) + b"\x80" * sections[-1].raw
    sections = (*sections[:-1], Section(sections[-1].raw, sections[-1].raw))
    coding = replace(honest.coding, sections=sections, checksum=zlib.crc32(payload))
    return Encoded(header=honest.header, payload=memoryview(payload), coding=coding)


def setbacks(coordinator: TrainingNode) -> list[str]:
    """What the coordinator says of a stage that was lost."""
    return [event.sentence for event in coordinator.status().events if "another plan" in event.sentence]


@pytest.mark.parametrize(
    ("lie", "policy", "direction"),
    [
        (all_entries, "topk:10%", "forward"),
        (another_codec, "topk:10%", "forward"),
        (no_entries, "topk:10%", "forward"),
        (another_shape, "int4", "backward"),
        (symbols_at_the_limit, "int4", "backward"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
async def test_who_sends_a_tensor_that_its_plan_does_not_say_is_named_and_the_job_goes_on(
    lie: Callable[[Encoded], Encoded],
    policy: str,
    direction: str,
    tmp_path: Path,
    make_job: MakeJob,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = prepare_job(make_job(policy=policy, micro_batch_size=8))
    liar, honest = 0 if direction == "forward" else 1, StagePipeline._send_encoded

    def lies(pipeline: StagePipeline, message: BoundaryTensor, encoded: Encoded) -> None:
        told = message.direction == direction and message.fence.step >= LIE_FROM_STEP
        mine = encoded.coding is not None and pipeline.stage == liar
        honest(pipeline, message, lie(encoded) if told and mine else encoded)

    async with Cluster(tmp_path, networks=memory_networks()) as cluster:
        await cluster.add_bootstrap()
        peers = [await cluster.add_peer(memory=memory_of(prepared, 2)) for _ in range(2)]
        author = await cluster.add_author()
        with monkeypatch.context() as patch:
            patch.setattr(StagePipeline, "_send_encoded", lies)
            job = await author.author.publish(prepared, patience=60.0)
            coordinator = next(peer for peer in peers if peer.identity.peer == job.coordinator)
            await cluster.until(lambda: bool(setbacks(coordinator)))
            assert job.plan is not None
            who = PeerId(job.plan.stages[liar].holder)
        (told,) = setbacks(coordinator)[:1]
        blamed = "this peer broke the protocol" if job.coordinator == who else f"peer {short(who)}"
        assert blamed in told or f"peer {short(who)}" in told
        assert "fault in this program" not in told
        peers.append(await cluster.add_peer(memory=memory_of(prepared, 2)))
        await cluster.until(lambda: job.ended)
        assert job.state == "done", job.sentence
        again = await author.author.publish(prepared, patience=60.0)
        await cluster.until(lambda: again.ended)
        assert again.state == "done", again.sentence
        await cluster.until(lambda: not any(peer.held() for peer in peers))
