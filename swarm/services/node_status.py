"""The status document of a node, put together from what its services know."""

import math
from collections.abc import Container
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swarm.ids import JobId, PeerId, StageIndex, short
from swarm.protocol.gossip_store import Known
from swarm.protocol.joining import Answer, Attempt
from swarm.protocol.pipeline_statistics import PipelineStatistics
from swarm.schedule.units import format_count
from swarm.services.job import Job
from swarm.services.status.curve import MAX_POINTS
from swarm.services.status.document import (
    AttemptStatus,
    DoorStatus,
    EncodingStatus,
    EventStatus,
    GroupStatus,
    JobStatus,
    LinkStatus,
    LogStatus,
    MemberStatus,
    PeerStatus,
    PlanStatus,
    SnapshotStatus,
    SpotCheckStatus,
    StageStatus,
    StatusDocument,
    SwarmStatus,
    ValidationPoint,
    WaitingStatus,
)
from swarm.services.version import program_version
from swarm.wire.records.peer import PeerRecord
from swarm.wire.records.plan import Plan

if TYPE_CHECKING:
    from swarm.services.node import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A copy of a stage as it was after ``step`` steps, on this node's disk."""

    step: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldStage:
    """A stage that this peer holds."""

    job: JobId
    stage: StageIndex
    memory: int
    pipeline: PipelineStatistics | None
    """None while it loads."""
    encodings: tuple[EncodingStatus, ...] = ()
    """What it has sent each way."""
    snapshot: Snapshot | None = None
    """The newest that was kept here."""
    log: LogStatus | None = None
    """What it has sent, as far as it is kept."""


def describe_node(node: "Node") -> StatusDocument:
    """The present status of ``node``."""
    held = node.held()
    jobs = tuple(_job(job, held, _sentence(node, job)) for job in reversed(node.jobs.all()))
    running = [job for job in node.jobs.all() if not job.ended and job.plan is not None]
    plan = _plan(running[-1], held) if running else None
    return StatusDocument(
        version=program_version(),
        peer=_peer(node, held),
        swarm=SwarmStatus(id=node.identity.swarm, name=node.identity.name),
        members=_members(node),
        groups=tuple(_group(job) for job in running),
        jobs=jobs,
        plan=plan,
        links=_links(node),
        waiting=_waiting(node, held),
        events=tuple(
            EventStatus(time=event.wall, kind=event.kind, peer=event.peer, sentence=event.sentence)
            for event in node.story.events()
        ),
    )


def _peer(node: "Node", held: tuple[HeldStage, ...]) -> PeerStatus:
    return PeerStatus(
        id=node.identity.peer,
        name=node.config.folder.name,
        role=node.config.role,
        since=node.since,
        addresses=node.addresses,
        device=node.config.capabilities.device,
        memory=node.config.capabilities.memory,
        memory_used=sum(stage.memory for stage in held),
        stages=len(held),
        paused=node.paused_since,
    )


def _members(node: "Node") -> tuple[MemberStatus, ...]:
    identity, capabilities = node.identity, node.config.capabilities
    own = MemberStatus(
        id=identity.peer,
        role=node.config.role,
        invite=identity.member.invite,
        label=identity.member.label,
        linked=True,
        address=node.addresses[0] if node.addresses else "",
        device=capabilities.device,
        memory=capabilities.memory,
        since=node.since,
        known="self",
    )
    heard = {known.peer: known for known in node.gossip.members() if known.peer != identity.peer}
    met_ever = {met.peer for met in node.members.all()}
    others = (
        MemberStatus(
            id=met.peer,
            role=met.role,
            invite=met.invite,
            label=met.label,
            linked=met.peer in node.links,
            address=met.addresses[0] if met.addresses else "",
            device=met.device,
            memory=met.memory,
            since=met.since,
            attempts=() if met.peer in node.links else _attempts(node, PeerId(met.peer)),
            known="link" if met.peer in node.links else "gossip" if met.peer in heard else "met",
            heard=heard[PeerId(met.peer)].record.signed if met.peer in heard else None,
        )
        for met in node.members.all()
    )
    unreached = {record.peer: record for record in node.entrance.unreached()}
    told = (_heard(node, known, unreached) for peer, known in heard.items() if peer not in met_ever)
    found = (
        record
        for peer, record in unreached.items()
        if peer not in heard and peer not in met_ever and not node.gossip.outdates(record)
    )
    return (own, *others, *told, *(_unreached(node, record) for record in found))


def _heard(node: "Node", known: Known, unreached: Container[PeerId]) -> MemberStatus:
    """A member that this node has never been linked with."""
    record = known.record
    return MemberStatus(
        id=known.peer,
        role=record.role,
        invite=known.member.invite,
        label=known.member.label,
        linked=False,
        address=record.addresses[0] if record.addresses else "",
        device=record.capabilities.device,
        memory=record.capabilities.memory,
        since=record.signed,
        attempts=_attempts(node, known.peer),
        waiting="for a relay" if known.peer in unreached else "",
        known="gossip",
        heard=record.signed,
    )


def _unreached(node: "Node", record: PeerRecord) -> MemberStatus:
    """A peer of which no more is known than its record in the DHT."""
    return MemberStatus(
        id=record.peer,
        role=record.role,
        invite="",
        label="",
        linked=False,
        address=record.addresses[0] if record.addresses else "",
        device="",
        memory=0,
        since=record.sequence / 1000,
        attempts=_attempts(node, record.peer),
        waiting="for a relay",
        known="dht",
    )


def _links(node: "Node") -> tuple[LinkStatus, ...]:
    found = []
    wall, now = node.clock.wall(), node.clock.elapsed()
    for peer, link in sorted(node.links.items()):
        numbers = link.statistics()
        found.append(
            LinkStatus(
                peer=peer,
                address=link.address,
                path=link.path,
                dialed=link.dialed,
                since=wall - (now - numbers.since),
                rtt=numbers.rtt or None,
                bytes_sent=numbers.bytes_sent,
                bytes_received=numbers.bytes_received,
                rate_up=numbers.rate_up or None,
                rate_down=numbers.rate_down or None,
                attempts=_attempts(node, peer) if link.dialed else (),
            )
        )
    return tuple(found)


def _attempts(node: "Node", peer: PeerId) -> tuple[AttemptStatus, ...]:
    return tuple(
        AttemptStatus(address=call.address, answer=call.answer, seconds=call.seconds, began=call.began)
        for call in node.pool.attempts(peer)
    )


def _group(job: Job) -> GroupStatus:
    """Until bandwidths are measured, the peers of a plan are one group."""
    stages = job.plan.stages if job.plan is not None else ()
    return GroupStatus(
        peers=tuple(dict.fromkeys(stage.holder for stage in stages)), stages=tuple(range(len(stages)))
    )


def _sentence(node: "Node", job: Job) -> str:
    """What is said of a job; of one that nothing was heard of, why."""
    if job.heard or job.ended or job.coordinator == node.identity.peer:
        return job.sentence
    where = "" if job.coordinator in node.links else ", which is out of reach"
    return f"waiting for word from its coordinator, peer {short(job.coordinator)}{where}"


def _job(job: Job, held: tuple[HeldStage, ...], sentence: str) -> JobStatus:
    speed = job.tokens_per_second
    running = job.state == "training" and speed > 0
    remaining = (job.manifest.steps - job.step) * job.tokens_per_step
    return JobStatus(
        id=job.id,
        name=job.manifest.name,
        author=job.author,
        coordinator=job.coordinator,
        state=job.state,
        sentence=sentence,
        since=job.since,
        until=job.until or None,
        step=job.step,
        steps=job.manifest.steps,
        loss=_number(job.losses[-1]) if job.losses else None,
        held_out=_number(job.held_out),
        tokens_per_second=speed if running else None,
        eta=remaining / speed if running else None,
        replicas=job.replicas,
        kept=job.kept,
        stages=_stages(job, job.plan, held) if _is_placed(job) and job.plan is not None else (),
        curve=job.curve.points,
        validations=tuple(
            ValidationPoint(step=validation.step, loss=validation.loss, metric=validation.metric)
            for validation in job.validations[-MAX_POINTS:]
        ),
        spot_check=_spot_check(job),
    )


def _spot_check(job: Job) -> SpotCheckStatus | None:
    found = job.spot_check
    if found is None:
        return None
    difference = (found.encoded - found.lossless) / abs(found.lossless) if found.lossless else 0.0
    return SpotCheckStatus(
        encoded=found.encoded,
        lossless=found.lossless,
        difference=difference if math.isfinite(difference) else 0.0,
    )


def _is_placed(job: Job) -> bool:
    """Whether its stages are somewhere: those of a job that did not get to its end are let go."""
    return job.state not in {"failed", "cancelled"}


def _plan(job: Job, held: tuple[HeldStage, ...]) -> PlanStatus | None:
    plan = job.plan
    if plan is None:
        return None
    return PlanStatus(
        job=job.id,
        generation=plan.generation,
        step=plan.step,
        stages=_stages(job, plan, held),
        explanation=(*plan.explanation, *([job.hiding] if job.hiding else [])),
    )


def _stages(job: Job, plan: Plan, held: tuple[HeldStage, ...]) -> tuple[StageStatus, ...]:
    """The plan's stages: its own the node knows, of the others what the job's state says."""
    mine = {stage.stage: stage for stage in held if stage.job == job.id}
    planned_codecs = tuple(planned.codec for planned in plan.stages)
    codecs = job.encodings[-1][1] if job.encodings else planned_codecs
    found = []
    for index, planned in enumerate(plan.stages):
        own = mine.get(StageIndex(index))
        ready = job.state in {"training", "finishing", "done"} or (
            own is not None and own.pipeline is not None
        )
        found.append(
            StageStatus(
                stage=index,
                holder=planned.holder,
                incarnation=planned.incarnation,
                operators=planned.last - planned.first,
                memory=planned.memory,
                ready=ready,
                predicted_seconds=planned.seconds,
                codec=str(codecs[index] if index < len(codecs) else planned.codec),
                encodings=own.encodings if own is not None else (),
                snapshot=_snapshot(job, planned.holder, own),
                log=own.log if own is not None else None,
            )
        )
    return tuple(found)


def _snapshot(job: Job, holder: str, own: HeldStage | None) -> SnapshotStatus | None:
    if own is None or own.snapshot is None:
        return None
    kept = own.snapshot
    peers = (holder, job.coordinator) if job.kept is not None and job.kept >= kept.step else (holder,)
    return SnapshotStatus(
        step=kept.step,
        bytes=kept.bytes,
        peers=tuple(dict.fromkeys(peers)),
        behind=max(job.step - kept.step, 0),
    )


def _waiting(node: "Node", held: tuple[HeldStage, ...]) -> WaitingStatus | None:
    """What is waited for, the node's own entry first, then jobs, then stages."""
    state = node.entrance.state
    if state.waiting:
        doors = tuple(door for attempt in state.attempts for door in _doors(attempt))
        return WaitingStatus(reason=state.waiting, job="", since=state.since, until=None, doors=doors)
    if node.paused_since is not None:
        reason = (
            f"others to take over {format_count(len(held), 'stage')}" if held else "its user to resume it"
        )
        return WaitingStatus(reason=f"{reason} (it is paused)", job="", since=node.paused_since, until=None)
    for job in node.jobs.all():
        if job.state in {"waiting", "loading"}:
            reason = _sentence(node, job).removeprefix("waiting for ")
            return WaitingStatus(reason=reason, job=job.id, since=job.since, until=job.until or None)
    for stage in held:
        if stage.pipeline is not None and stage.pipeline.waiting:
            since = node.clock.wall() - (node.clock.elapsed() - stage.pipeline.since)
            reason = f"{stage.pipeline.waiting} (stage {stage.stage + 1})"
            return WaitingStatus(reason=reason, job=stage.job, since=since, until=None)
    if node.config.role == "peer" and not held:
        return WaitingStatus(reason="a job that needs this peer", job="", since=node.idle_since, until=None)
    return None


def _doors(attempt: Attempt) -> tuple[DoorStatus, ...]:
    """A line for each numeric address that answered, or one that says that none has."""
    known = attempt.answers or (Answer(address="", family="", sentence="", seconds=0.0),)
    return tuple(
        DoorStatus(
            seed=attempt.address,
            source=attempt.source,
            address=answer.address,
            family=answer.family,
            answer=answer.sentence or ("is being called" if attempt.calling else "is called soon"),
            elapsed=answer.seconds,
            calls=attempt.calls,
        )
        for answer in known
    )


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
