"""One job under coordination: what its coordinator keeps of it, and the records it makes for it."""

import asyncio

import msgspec

from swarm.errors import CapacityError, LocalError
from swarm.graph.cut import trained_uses
from swarm.graph.dag import Graph
from swarm.ids import Generation, PeerId, Step, short
from swarm.protocol.coordination import CoordinationMachine
from swarm.protocol.coordination_events import (
    CopyHeard,
    Event,
    LinksReported,
    MakePlan,
    OfferArrived,
    PlanMade,
    ResultHeard,
    SnapshotHeard,
    StageLoaded,
    StageLost,
    TakenHeard,
)
from swarm.protocol.terms import JobTerms, Resources
from swarm.services.job import Job
from swarm.services.job_check import average_of, cut_as_planned
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import (
    LimitedOffer,
    LinkReport,
    Offer,
    PlanIssue,
    StageFailed,
    StageReady,
    StageResult,
    StageSnapshot,
)
from swarm.wire.messages.handover import PlanTaken, StageCopy
from swarm.wire.messages.jobs import JobNotice, JobProgress
from swarm.wire.records.blobs import TensorBlob
from swarm.wire.records.manifest import blobs_of
from swarm.wire.text import printable


class Coordinated:
    """One job under coordination."""

    def __init__(self, job: Job) -> None:
        manifest = job.manifest
        self.job = job
        self.machine = CoordinationMachine(
            JobTerms(
                job=job.id,
                steps=manifest.steps,
                evaluates=manifest.held_out is not None,
                validate_every=manifest.validate_every,
                patience=manifest.patience,
                bytes=sum(blob.size for blob in blobs_of(manifest)),
                keeps_lines=not manifest.export_to,
            )
        )
        self.wake = asyncio.Event()
        self.heard: list[JobProgress] = []
        self.followers: set[PeerId] = set()
        self.catching_up: dict[PeerId, asyncio.Task[None]] = {}
        """Followers that have not been sent yet all that there was before."""
        self.graphs: asyncio.Future[tuple[Graph, Graph]] = asyncio.get_running_loop().create_future()
        self.begun = asyncio.Event()
        """What an earlier run has kept, if anything, is in place."""
        self.told_at = 0.0
        self.issued: PlanIssue | None = None
        self.proposed: bytes = b""
        """The plan that was proposed last, signed."""


def event_of(sender: PeerId, message: Message) -> Event | None:
    """What ``message`` is to its job's machine; None for messages that it does not take."""
    match message:
        case Offer():
            lacks = frozenset(message.lacks if isinstance(message, LimitedOffer) else ())
            resources = Resources(peer=sender, memory=message.memory, flops=message.flops, lacks=lacks)
            return OfferArrived(resources=resources)
        case LinkReport():
            return LinksReported(peer=sender, links=frozenset(PeerId(peer) for peer in message.peers))
        case StageReady(stage=stage):
            return StageLoaded(peer=sender, generation=Generation(message.generation), stage=stage)
        case StageFailed(stage=stage, sentence=sentence):
            generation = Generation(message.generation)
            return StageLost(peer=sender, generation=generation, stage=stage, sentence=sentence)
        case StageResult(stage=stage, tensors=tensors):
            generation = Generation(message.generation)
            return ResultHeard(peer=sender, generation=generation, stage=stage, tensors=tensors)
        case StageSnapshot(stage=stage, step=step, tensors=state):
            generation = Generation(message.generation)
            return SnapshotHeard(peer=sender, generation=generation, stage=stage, step=step, tensors=state)
        case _:
            return None


def hand_over_event(sender: PeerId, message: Message) -> Event | None:
    """As :func:`event_of`, of the messages of a hand-over."""
    match message:
        case StageCopy(stage=stage, step=step, tensors=state):
            return CopyHeard(
                peer=sender,
                generation=Generation(message.generation),
                stage=stage,
                step=step,
                tensors=state,
                codecs=message.codecs,
                later=message.later,
            )
        case PlanTaken(step=step):
            return TakenHeard(peer=sender, generation=Generation(message.generation), step=Step(step))
        case _:
            return None


def notice_of(job: Job) -> JobNotice:
    """Where a job stands that goes on."""
    match job.state:
        case "waiting" | "loading" | "training" | "finishing":
            return JobNotice(
                job=job.id,
                state=job.state,
                sentence=printable(job.sentence),
                since=job.since,
                until=job.until,
                step=job.step,
                replicas=job.replicas,
            )
        case _:
            raise LocalError(f"job {short(job.id)} has ended: its outcome says more than a notice")


def made_plan(job: Job, graphs: tuple[Graph, Graph], action: MakePlan) -> PlanMade:
    """The plan for these offers, and what its stages are to return; takes seconds.

    Raises CapacityError where the peers cannot hold the job.
    """
    from swarm.schedule.plan import make_plan  # noqa: PLC0415 - imports numpy, and few nodes plan
    from swarm.schedule.workload import PeerOffer, Workload  # noqa: PLC0415

    train, evaluate = graphs
    workload = Workload(
        graph=train,
        evaluation=evaluate,
        optimizer=job.manifest.optimizer,
        micro_batches=job.manifest.micro_batches,
        policy=job.manifest.policy,
    )
    offers = [PeerOffer(peer=o.peer, memory=o.memory, flops=o.flops, lacks=o.lacks) for o in action.offers]
    try:
        plan = make_plan(job.id, workload, offers)
    except CapacityError as error:
        raise CapacityError("; ".join([str(error), *action.left_out])) from None
    plan = msgspec.structs.replace(plan, explanation=(*plan.explanation, *action.left_out))
    initial = {tensor.name: tensor for tensor in job.manifest.tensors}
    averages = frozenset(trained_uses(train)) if job.manifest.optimizer.ema > 0 else frozenset()
    results = []
    for stage in cut_as_planned(plan, train):
        owned = [use.value for use in (*stage.parameters, *stage.buffers) if use.owned]
        tensors = [(initial[train.values[value].name], value in averages) for value in owned]
        results.append((*(tensor for tensor, _ in tensors), *(average_of(t) for t, kept in tensors if kept)))
    return PlanMade(plan=plan, results=tuple(results))


def complete_weights(job: Job, trained: tuple[TensorBlob, ...]) -> tuple[TensorBlob, ...]:
    """``trained``, and the initial tensors that no stage trains but the author's ``state_dict`` has."""
    names = {tensor.name for tensor in trained}
    wanted = {name for _, name in job.manifest.state} - names
    return (*trained, *(tensor for tensor in job.manifest.tensors if tensor.name in wanted))
