"""The one registry of message numbers, and the coding of messages."""

from typing import Final

import msgspec

from swarm.errors import LocalError, RemoteProtocolError
from swarm.wire.limits import MAX_MESSAGE_BYTES
from swarm.wire.messages import blocks, coordination, gossip, handover, hello, jobs, pipeline
from swarm.wire.messages.base import Message

MESSAGES: Final[dict[int, type[Message]]] = {
    message.NUMBER: message
    for message in (
        hello.Hello,
        hello.Accept,
        hello.Refusal,
        hello.RevocationNews,
        hello.Referral,
        jobs.JobAnnounce,
        jobs.JobCancel,
        jobs.JobFollow,
        jobs.JobNotice,
        jobs.JobProgress,
        jobs.JobOutcome,
        jobs.JobValidation,
        jobs.JobTuning,
        jobs.JobSpotCheck,
        coordination.Offer,
        coordination.LimitedOffer,
        coordination.PlanIssue,
        coordination.StageReady,
        coordination.StageFailed,
        coordination.PlanStart,
        coordination.StageResult,
        coordination.LinkReport,
        coordination.SnapshotDue,
        coordination.StageSnapshot,
        pipeline.BoundaryTensor,
        pipeline.SharedTensor,
        pipeline.StageReport,
        pipeline.StepRecord,
        pipeline.FenceRefused,
        pipeline.CodedTensor,
        pipeline.RatedReport,
        pipeline.TunedRecord,
        pipeline.SwitchRecord,
        blocks.BlockRequest,
        blocks.BlockReply,
        blocks.BlockMissing,
        gossip.GossipDigest,
        gossip.GossipSummary,
        gossip.GossipRequest,
        gossip.GossipAnswer,
        gossip.GossipDeparture,
        handover.PlanProposal,
        handover.ProposalWithdrawn,
        handover.StageWanted,
        handover.StageCopy,
        handover.ReplayWanted,
        handover.ReplayMissing,
        handover.PlanTaken,
        handover.LineCommitted,
    )
}

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODERS: Final = {number: msgspec.msgpack.Decoder(message) for number, message in MESSAGES.items()}


def encode_message(message: Message) -> bytes:
    """The body of ``message``; raises LocalError where it is larger than any receiver takes."""
    body = _ENCODER.encode(message)
    if len(body) > MAX_MESSAGE_BYTES:
        raise LocalError(f"a {type(message).__name__} of {len(body)} bytes is over the limit of a message")
    return body


def decode_message(number: int, body: bytes | bytearray | memoryview) -> Message:
    """The message with this number in ``body``, of which it keeps nothing; raises RemoteProtocolError for
    anything else."""
    if len(body) > MAX_MESSAGE_BYTES:
        raise RemoteProtocolError(f"message {number} has {len(body)} bytes, over the limit")
    try:
        return _DECODERS[number].decode(body)
    except KeyError:
        raise RemoteProtocolError(f"there is no message number {number}") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"message {number} does not parse: {error}") from None
