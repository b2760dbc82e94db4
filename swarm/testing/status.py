"""A status document with something in every field, and a node that answers with it."""

from pathlib import Path

import msgspec

from swarm.errors import FailureError, MisuseError
from swarm.services.status.document import (
    AttemptStatus,
    CurvePoint,
    EventStatus,
    GroupStatus,
    JobStatus,
    LinkStatus,
    MemberStatus,
    PeerStatus,
    PlanStatus,
    SnapshotStatus,
    StageStatus,
    StatusDocument,
    SwarmStatus,
    WaitingStatus,
)
from swarm.services.status.source import WHOLE, CancelReport, ExportReport, RevocationReport, Selection

MOMENT = 1_700_000_000.0
"""The wall time around which everything in the sample happens."""
FIRST = "a" * 32
SECOND = "b" * 32
JOB = "j" * 52


def sample_status() -> StatusDocument:
    """A peer that holds the first of two stages of a job, beside a peer that left."""
    stages = (
        StageStatus(
            stage=0,
            holder=FIRST,
            incarnation=1,
            operators=20,
            memory=1 << 20,
            ready=True,
            predicted_seconds=0.25,
            snapshot=SnapshotStatus(step=24, bytes=3 << 20, peers=(FIRST, SECOND)),
        ),
        StageStatus(
            stage=1,
            holder=SECOND,
            incarnation=1,
            operators=22,
            memory=1 << 21,
            ready=False,
            predicted_seconds=0.5,
        ),
    )
    return StatusDocument(
        version="0.1.0",
        peer=PeerStatus(
            id=FIRST,
            name="peer1",
            role="peer",
            since=MOMENT - 60,
            addresses=("192.0.2.1:7423",),
            device="cpu",
            memory=1 << 30,
            memory_used=1 << 20,
            stages=1,
        ),
        swarm=SwarmStatus(id="s" * 32, name="lab"),
        members=(_member(FIRST, "Ann", linked=True), _member(SECOND, "Bob", linked=False)),
        groups=(GroupStatus(peers=(FIRST, SECOND), stages=(0, 1)),),
        jobs=(_job(stages),),
        plan=PlanStatus(job=JOB, generation=1, step=0, stages=stages, explanation=("stage 1 of 2: on aaaa",)),
        links=(
            LinkStatus(
                peer=SECOND,
                address="192.0.2.2:7423",
                path="direct",
                dialed=True,
                since=MOMENT - 50,
                rtt=0.0125,
                bytes_sent=5000,
                bytes_received=7000,
                rate_up=1e6,
                rate_down=None,
                attempts=(
                    _attempt("192.0.2.1:7423", "does not listen (connection refused)", seconds=0.125),
                    _attempt("192.0.2.2:7423", "", seconds=0.5),
                ),
            ),
        ),
        waiting=WaitingStatus(
            reason="stage 1 to load on bbbbbbbb", job=JOB, since=MOMENT - 5, until=MOMENT + 60
        ),
        events=(
            EventStatus(time=MOMENT - 50, kind="joined", peer=SECOND, sentence="bbbbbbbb joined as Bob"),
            EventStatus(time=MOMENT - 1, kind="left", peer=SECOND, sentence="bbbbbbbb left: Ctrl+C"),
        ),
    )


def _member(peer: str, label: str, *, linked: bool) -> MemberStatus:
    return MemberStatus(
        id=peer,
        role="peer",
        invite="i" * 32,
        label=label,
        linked=linked,
        address="192.0.2.9:7423",
        device="cpu",
        memory=1 << 30,
        since=MOMENT - 50,
        attempts=() if linked else (_attempt("192.0.2.9:7423", "did not answer within 5 s", seconds=5.0),),
    )


def _attempt(address: str, answer: str, *, seconds: float) -> AttemptStatus:
    return AttemptStatus(address=address, answer=answer, seconds=seconds, began=MOMENT - 50)


def _job(stages: tuple[StageStatus, ...]) -> JobStatus:
    return JobStatus(
        id=JOB,
        name="gpt",
        author=SECOND,
        coordinator=SECOND,
        state="training",
        sentence="",
        since=MOMENT - 5,
        until=None,
        step=30,
        steps=200,
        loss=2.5,
        held_out=None,
        tokens_per_second=1234.5,
        eta=170.0,
        replicas=1,
        kept=None,
        stages=stages,
        curve=(CurvePoint(step=0, loss=5.5), CurvePoint(step=29, loss=2.5)),
    )


class SampleSource:
    """A status source with ``document``; it knows the sample's job and notes the commands it was given."""

    def __init__(self) -> None:
        self.document = sample_status()
        self.commands: list[tuple[str, str]] = []

    def status(self) -> StatusDocument:
        """``document``."""
        return self.document

    def set_paused(self, *, paused: bool) -> None:
        """Note it, and show it."""
        self.commands.append(("pause" if paused else "resume", ""))
        peer = msgspec.structs.replace(self.document.peer, paused=MOMENT if paused else None)
        self.replace(peer=peer)

    async def cancel(self, job: str) -> CancelReport:
        """Note it, if the job is known."""
        self._find(job)
        self.commands.append(("cancel", job))
        return CancelReport(job=JOB)

    async def export(self, job: str, path: Path, selection: Selection = WHOLE) -> ExportReport:
        """Note it, and fail where ``path`` is in a missing folder."""
        self._find(job)
        if not path.parent.is_dir():
            raise FailureError(f"{path} cannot be written: no such folder")
        chosen = [name for name in ("only_trained", "ema") if getattr(selection, name)]
        self.commands.append((" ".join(["export", *chosen]), job))
        return ExportReport(job=JOB, path=str(path), tensors=3, bytes=1000)

    async def revoke(self, lists: tuple[bytes, ...], epoch_key: bytes) -> RevocationReport:
        """Know nothing else, and tell one peer."""
        self.commands.append(("revoke", str(len(lists))))
        return RevocationReport(lists=lists, epoch_key=epoch_key, told=1)

    def replace(self, **changes: object) -> None:
        """Change fields of the document."""
        self.document = msgspec.structs.replace(self.document, **changes)

    def _find(self, job: str) -> None:
        if not JOB.startswith(job):
            raise MisuseError(f"no job begins with {job}")
