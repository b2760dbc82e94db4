"""Golden bytes of every message of wire version 1. The file is added to, never edited."""

import json
import math
from pathlib import Path

import pytest

from swarm.wire.codecs import CodecSpec
from swarm.wire.coding import Coding, Section
from swarm.wire.messages import blocks, coordination, gossip, handover, hello, jobs, pipeline
from swarm.wire.messages.base import Message
from swarm.wire.messages.registry import MESSAGES, decode_message, encode_message
from swarm.wire.records.blobs import Blob, TensorBlob
from swarm.wire.records.state import StateTensor
from swarm.wire.tensors import TensorHeader

VECTORS = json.loads((Path(__file__).parent / "messages_v1.json").read_text("utf-8"))

PEER = "a2" * 16
JOB = "k7" * 26
FENCE = pipeline.Fence(job=JOB, step=17, phase="train", source=0, target=1, sender=3, receiver=4)
HEADER = TensorHeader("float32", (2, 3), (3, 1), 0)
TENSOR = TensorBlob(name="head.weight", dtype="float32", shape=(2, 3), blob=Blob(size=24, blocks=(JOB,)))

SAMPLES: list[Message] = [
    hello.Hello(
        oldest=1,
        newest=2,
        program="fusion-swarm 0.1.0",
        swarm=PEER,
        role="peer",
        chain=(b"delegate", b"leaf"),
        admission=b"admission",
        door=bytes(range(32)),
        boot=bytes(8),
        wall=1796040000.5,
        revocations=bytes(range(32)),
        addresses=("192.0.2.1:7423", "[2001:db8::1]:7423"),
        capabilities=hello.Capabilities(
            memory=6 << 30, device="cuda:0", torch="2.13.0", operators=JOB, like="torch 2.13.0, cuda"
        ),
    ),
    hello.Accept(version=1, observed="198.51.100.7:40000", admission=b"admission"),
    hello.Refusal(code="invite-expired", sentence="your invite had to be used by yesterday"),
    hello.RevocationNews(lists=(b"newest", b"other"), epoch_key=bytes(range(32))),
    hello.Referral(addresses=("198.51.100.7:7423", "[2001:db8::7]:7423")),
    jobs.JobAnnounce(manifest=b"manifest"),
    jobs.JobCancel(cancellation=b"cancellation"),
    jobs.JobFollow(job=JOB, since=12),
    jobs.JobNotice(
        job=JOB,
        state="waiting",
        sentence="waiting for peers that offer memory",
        since=1796040000.0,
        until=1796040120.0,
        step=0,
        replicas=1,
    ),
    jobs.JobOutcome(outcome=b"outcome"),
    jobs.JobProgress(
        job=JOB, incarnation=1, step=17, outcome="applied", clip=0.5, norm=2.0, loss=3.25, cause=""
    ),
    jobs.JobValidation(
        job=JOB,
        incarnation=1,
        step=50,
        outcome="evaluated",
        clip=1.0,
        norm=0.0,
        loss=3.25,
        cause="",
        metric=0.75,
    ),
    jobs.JobSpotCheck(
        job=JOB,
        incarnation=1,
        step=50,
        outcome="evaluated",
        clip=1.0,
        norm=0.0,
        loss=3.25,
        cause="",
        metric=math.inf,
        encoded=3.5,
        lossless=3.375,
    ),
    jobs.JobTuning(
        job=JOB,
        incarnation=1,
        step=17,
        outcome="applied",
        clip=0.5,
        norm=2.0,
        loss=3.25,
        cause="",
        later=(CodecSpec("int6"), CodecSpec("topk", 100_000, 8)),
        hiding="communication hides",
    ),
    coordination.Offer(job=JOB, memory=1 << 30, flops=5e10, holding=False),
    coordination.LimitedOffer(
        job=JOB, memory=1 << 30, flops=5e10, holding=False, lacks=("aten.rms_norm.default", "float64")
    ),
    coordination.PlanIssue(plan=b"plan"),
    coordination.StageReady(job=JOB, generation=1, stage=2),
    coordination.StageFailed(job=JOB, generation=1, stage=2, sentence="out of memory"),
    coordination.PlanStart(job=JOB, generation=1),
    coordination.StageResult(job=JOB, generation=1, stage=2, tensors=(TENSOR,)),
    coordination.LinkReport(job=JOB, peers=("b" * 32, "c" * 32)),
    coordination.SnapshotDue(job=JOB, generation=3, step=120),
    coordination.StageSnapshot(
        job=JOB,
        generation=3,
        stage=2,
        step=120,
        tensors=(StateTensor("value", TENSOR), StateTensor("exp_avg_sq", TENSOR)),
    ),
    pipeline.BoundaryTensor(fence=FENCE, micro_batch=5, tensor=77, direction="forward", header=HEADER),
    pipeline.SharedTensor(fence=FENCE, parameter=3, operator=90, direction="gradient", header=HEADER),
    pipeline.StageReport(
        fence=FENCE,
        squares=(pipeline.Square(3, 0.25),),
        losses=(3.5, 3.0),
        fault="",
        fault_forward=False,
        compute_seconds=0.125,
    ),
    pipeline.StepRecord(fence=FENCE, outcome="failed", clip=0.0, norm=0.0, loss=3.0, cause="NaN"),
    pipeline.FenceRefused(fence=FENCE, generation=2),
    pipeline.CodedTensor(
        fence=FENCE,
        micro_batch=5,
        tensor=77,
        direction="forward",
        header=TensorHeader("float32", (64, 128), (128, 1), 0),
        coding=Coding(
            codec="topk",
            sections=(Section(840, 500), Section(0, 0), Section(26, 26), Section(820, 700)),
            checksum=0xDEADBEEF,
            kept=820,
            bits=8,
            order="rows",
        ),
    ),
    pipeline.RatedReport(
        fence=FENCE,
        squares=(),
        losses=(),
        fault="",
        fault_forward=False,
        compute_seconds=0.125,
        rates=(pipeline.NeighbourRate(1, 1e6, 0.0),),
    ),
    pipeline.TunedRecord(
        fence=FENCE,
        outcome="applied",
        clip=1.0,
        norm=2.0,
        loss=3.0,
        cause="",
        codecs=(CodecSpec(), CodecSpec()),
        later=(CodecSpec("int6"), CodecSpec()),
    ),
    pipeline.SwitchRecord(
        fence=FENCE,
        outcome="applied",
        clip=1.0,
        norm=2.0,
        loss=3.0,
        cause="",
        codecs=(CodecSpec(), CodecSpec()),
        later=(CodecSpec("int6"), CodecSpec()),
        generation=4,
    ),
    blocks.BlockRequest(request=9, digest=JOB),
    blocks.BlockReply(request=9),
    blocks.BlockMissing(request=10),
    gossip.GossipDigest(buckets=bytes(range(16)), revocations=bytes(range(32))),
    gossip.GossipSummary(records=bytes(range(28)), credentials=bytes(range(40)), bits=1, asking=(0, 1)),
    gossip.GossipRequest(records=bytes(range(20)), credentials=bytes(range(20, 40))),
    gossip.GossipAnswer(records=(b"record",), credentials=(b"credentials", b"others")),
    gossip.GossipDeparture(record=b"record"),
    handover.PlanProposal(plan=b"plan"),
    handover.StageWanted(job=JOB, generation=3, stage=2),
    handover.ReplayWanted(job=JOB, generation=4, stage=2, step=121),
    handover.ReplayMissing(job=JOB, generation=4, stage=2, sentence="the disk is full"),
    handover.PlanTaken(job=JOB, generation=4, step=124),
    handover.LineCommitted(job=JOB, generation=4, step=180),
    handover.StageCopy(
        job=JOB,
        generation=3,
        stage=1,
        step=120,
        tensors=(StateTensor("value", TENSOR),),
        codecs=(CodecSpec(), CodecSpec("int6")),
        later=(CodecSpec(), CodecSpec("int6")),
    ),
    handover.ProposalWithdrawn(job=JOB, generation=4),
]


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_has_exactly_its_golden_bytes(message: Message) -> None:
    golden = bytes.fromhex(VECTORS[str(message.NUMBER)])
    assert encode_message(message) == golden
    assert decode_message(message.NUMBER, golden) == message


@pytest.mark.parametrize("message", SAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_keeps_nothing_of_the_memory_that_it_came_in(message: Message) -> None:
    memory = bytearray.fromhex(VECTORS[str(message.NUMBER)])
    came = decode_message(message.NUMBER, memoryview(memory))
    memory[:] = bytes(len(memory))
    assert came == message


def test_every_message_has_a_vector() -> None:
    assert {message.NUMBER for message in SAMPLES} == set(MESSAGES) == {int(key) for key in VECTORS}
