"""A node's status document, made from what its services know."""

import math
from collections.abc import Sequence

from swarm.net.link import Link
from swarm.services.jobs import Job
from swarm.services.node import Node
from swarm.services.status.document import (
    EventStatus,
    GroupStatus,
    JobStatus,
    LinkStatus,
    MemberStatus,
    PeerStatus,
    PlanStatus,
    StageStatus,
    StatusDocument,
    SwarmStatus,
    WaitingStatus,
)
from swarm.services.version import program_version


def report(node: Node) -> StatusDocument:
    """The status of ``node`` now."""
    jobs = tuple(reversed(node.jobs.all()))
    plan = _current(jobs)
    return StatusDocument(
        version=program_version(),
        peer=_peer(node, jobs),
        swarm=SwarmStatus(id=node.identity.swarm, name=node.identity.name),
        members=_members(node),
        groups=() if plan is None else (_group(plan),),
        jobs=tuple(_job(job) for job in jobs),
        plan=plan,
        links=tuple(_link(node, link) for link in node.links.values()),
        waiting=_waiting(node, jobs),
        events=tuple(
            EventStatus(time=event.wall, kind=event.kind, peer=event.peer, sentence=event.sentence)
            for event in node.story.events()
        ),
    )


def _peer(node: Node, jobs: Sequence[Job]) -> PeerStatus:
    capabilities, own = node.config.capabilities, node.identity.peer
    planned = [stage for job in jobs if job.plan is not None and not job.ended for stage in job.plan.stages]
    return PeerStatus(
        id=own,
        name=node.config.folder.name,
        role=node.config.role,
        since=node.since,
        addresses=node.addresses,
        device=capabilities.device,
        memory=capabilities.memory,
        memory_used=sum(stage.memory for stage in planned if stage.holder == own),
    )


def _members(node: Node) -> tuple[MemberStatus, ...]:
    capabilities, member = node.config.capabilities, node.identity.member
    own = MemberStatus(
        id=member.peer,
        role=node.config.role,
        invite=member.invite,
        label=member.label,
        linked=True,
        address=next(iter(node.addresses), ""),
        device=capabilities.device,
        memory=capabilities.memory,
        since=node.since,
    )
    return own, *(
        MemberStatus(
            id=met.peer,
            role=met.role,
            invite=met.invite,
            label=met.label,
            linked=met.peer in node.links,
            address=next(iter(met.addresses), ""),
            device=met.device,
            memory=met.memory,
            since=met.since,
        )
        for met in node.members.all()
    )


def _link(node: Node, link: Link) -> LinkStatus:
    found = link.statistics()
    return LinkStatus(
        peer=link.peer,
        address=link.address,
        path=link.path,
        dialed=link.dialed,
        since=node.clock.wall() - (node.clock.elapsed() - found.since),
        rtt=found.rtt or None,
        bytes_sent=found.bytes_sent,
        bytes_received=found.bytes_received,
        rate_up=found.rate_up or None,
        rate_down=found.rate_down or None,
    )


def _job(job: Job) -> JobStatus:
    speed = job.tokens_per_second
    to_go = (job.manifest.steps - job.step) * job.tokens_per_step
    return JobStatus(
        id=job.id,
        name=job.manifest.name,
        author=job.author,
        coordinator=job.coordinator,
        state=job.state,
        sentence=job.sentence,
        since=job.since,
        until=job.until or None,
        step=job.step,
        steps=job.manifest.steps,
        loss=_finite(job.losses[-1]) if job.losses else None,
        held_out=_finite(job.held_out),
        tokens_per_second=speed or None,
        eta=to_go / speed if speed and job.state == "training" else None,
        replicas=job.replicas,
        stages=_stages(job),
        curve=tuple(point for point in job.curve.points if math.isfinite(point.loss)),
    )


def _stages(job: Job) -> tuple[StageStatus, ...]:
    """A line a stage. They begin together, so that one is ready where the job has begun."""
    if job.plan is None:
        return ()
    return tuple(
        StageStatus(
            stage=index,
            holder=stage.holder,
            incarnation=stage.incarnation,
            operators=stage.last - stage.first,
            memory=stage.memory,
            ready=job.state not in {"waiting", "loading"},
            predicted_seconds=stage.seconds,
        )
        for index, stage in enumerate(job.plan.stages)
    )


def _current(jobs: Sequence[Job]) -> PlanStatus | None:
    """The plan of the newest job that runs, or of the newest at all."""
    planned = [job for job in jobs if job.plan is not None]
    chosen = next((job for job in planned if not job.ended), next(iter(planned), None))
    if chosen is None or chosen.plan is None:
        return None
    return PlanStatus(
        job=chosen.id,
        generation=chosen.plan.generation,
        step=chosen.plan.step,
        stages=_stages(chosen),
        explanation=chosen.plan.explanation,
    )


def _group(plan: PlanStatus) -> GroupStatus:
    holders = tuple(dict.fromkeys(stage.holder for stage in plan.stages))
    return GroupStatus(peers=holders, stages=tuple(stage.stage for stage in plan.stages))


def _waiting(node: Node, jobs: Sequence[Job]) -> WaitingStatus | None:
    """What the node waits for, or else the newest job that does."""
    state = node.joining.state if node.joining is not None else None
    if state is not None and state.waiting:
        return WaitingStatus(reason=state.waiting, job="", since=state.since, until=None)
    for job in jobs:
        if job.state == "waiting":
            return WaitingStatus(reason=job.sentence, job=job.id, since=job.since, until=job.until or None)
    return None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
