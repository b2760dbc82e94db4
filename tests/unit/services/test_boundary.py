"""The boundary of a job: what passes it, and what becomes a sentence."""

import asyncio

import pytest

from swarm.errors import CaptureError, FailureError, LocalError, RemoteProtocolError
from swarm.ids import JobId
from swarm.services.boundary import job_boundary, job_of
from swarm.wire.limits import MAX_SENTENCE_LENGTH
from swarm.wire.messages.coordination import PlanIssue, PlanStart
from swarm.wire.messages.pipeline import BoundaryTensor, Fence

JOB = JobId("a" * 52)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (FailureError("the disk is full"), "the disk is full"),
        (CaptureError("no"), "no"),
        (RemoteProtocolError("not a graph"), "not a graph"),
        (LocalError("x"), "a fault in this program, see its log: LocalError: x"),
        (RecursionError("deep"), "a fault in this program, see its log: RecursionError: deep"),
        (MemoryError(), "a fault in this program, see its log: MemoryError: "),
    ],
)
def test_whatever_goes_wrong_becomes_one_sentence(error: Exception, sentence: str) -> None:
    told: list[str] = []
    with job_boundary(JOB, told.append):
        raise error
    assert told == [sentence]


def test_a_sentence_is_fit_for_the_wire() -> None:
    told: list[str] = []
    with job_boundary(JOB, told.append):
        raise ValueError("\x1b[2J" + "x" * 5000)
    assert len(told[0]) == MAX_SENTENCE_LENGTH
    assert "\x1b" not in told[0]


def test_what_is_charged_to_a_sender_passes_through() -> None:
    told: list[str] = []
    with pytest.raises(RemoteProtocolError), job_boundary(JOB, told.append, passes=(RemoteProtocolError,)):
        raise RemoteProtocolError("x")
    assert told == []


async def test_cancellation_passes_through() -> None:
    told: list[str] = []
    with pytest.raises(asyncio.CancelledError), job_boundary(JOB, told.append):
        raise asyncio.CancelledError
    assert told == []


def test_a_message_says_which_job_it_is_about() -> None:
    fence = Fence(job=JOB, step=0, phase="train", source=0, target=1, sender=1, receiver=1)
    tensor = BoundaryTensor(fence=fence, micro_batch=0, tensor=0, direction="forward", header=None)
    assert job_of(tensor) == JOB
    assert job_of(PlanStart(job=JOB, generation=1)) == JOB
    assert job_of(PlanIssue(plan=b"")) is None
