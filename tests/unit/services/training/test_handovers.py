"""Who may order, propose and ask for what while a stage changes hands."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from swarm.clock import SystemClock
from swarm.data.blocks import MemoryBlockStore
from swarm.errors import RemoteProtocolError
from swarm.identity.authority import Authority
from swarm.identity.envelope import PLAN, seal
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.revocations import Revocations
from swarm.identity.rights import ALL_RIGHTS
from swarm.ids import JobId, PeerId, StageIndex, Step
from swarm.services.job import Job
from swarm.services.training.handovers import HandOvers
from swarm.services.training.sent_log import SentLog
from swarm.testing.manifests import sample_manifest
from swarm.wire.messages.base import Message
from swarm.wire.messages.coordination import PlanStart
from swarm.wire.messages.handover import (
    LineCommitted,
    PlanProposal,
    ProposalWithdrawn,
    ReplayMissing,
    ReplayWanted,
    StageWanted,
)
from swarm.wire.messages.pipeline import BoundaryTensor, Fence
from swarm.wire.records.plan import Plan, StagePlan

CLOCK = SystemClock()
AUTHORITY = Authority.create("lab", public=False, now=CLOCK.wall())
NOTHING = memoryview(b"")
JOB = JobId("j" * 52)


def member() -> Identity:
    invite = AUTHORITY.issue(label="x", rights=ALL_RIGHTS, now=CLOCK.wall())
    return Identity.join(invite, key=PrivateKey.generate(), now=CLOCK.wall())


ME, COORDINATOR, OTHER, NEWCOMER = member(), member(), member(), member()


def stage(index: int, holder: Identity, incarnation: int = 1) -> StagePlan:
    return StagePlan(
        first=10 * index,
        last=10 * index + 10,
        evaluation=(),
        holder=holder.peer,
        incarnation=incarnation,
        depth=2 - index,
        memory=1000,
        seconds=0.0,
    )


def plan(generation: int, *stages: StagePlan) -> Plan:
    return Plan(format=1, job=JOB, generation=generation, step=0, stages=stages, explanation=())


PRESENT = plan(1, stage(0, ME), stage(1, OTHER))
PROPOSED = plan(2, stage(0, ME), stage(1, NEWCOMER, 2))


class World:
    """A node that holds the first of two stages, as far as hand-overs ask of it."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        self.identity = ME
        self.revocations = Revocations(AUTHORITY.certificate)
        self.clock, self.tasks = CLOCK, tasks
        self.sent: list[tuple[PeerId, Message]] = []
        self.failed: list[str] = []
        self.ready: list[int] = []
        self.given: list[tuple[StageIndex, PeerId]] = []
        self.proposed: list[Plan] = []
        self.copies = 0
        manifest = sample_manifest(steps=1000, council=(COORDINATOR.peer,))
        self.job = Job(id=JOB, envelope=b"x", manifest=manifest, author=COORDINATOR.peer, plan=PRESENT)
        log = SentLog("mine", 0, blocks=MemoryBlockStore(2**20), tasks=tasks, tell=self.failed.append)
        self.pipeline = SimpleNamespace(
            log=log,
            proposed=None,
            propose=self.propose,
            snapshots=SimpleNamespace(order_copy=self.copy),
            loaded=SimpleNamespace(role=SimpleNamespace(recorder=1)),
        )
        self.held: Any = SimpleNamespace(
            job=self.job, stage=StageIndex(0), donor=None, pipeline=self.pipeline, plan=PRESENT, given=PRESENT
        )
        self.on_loaded: Any = None
        self.service = HandOvers(cast("Any", self), context=cast("Any", self), jobs=cast("Any", self))

    def copy(self) -> None:
        self.copies += 1

    def propose(self, proposal: Plan) -> None:
        self.pipeline.proposed = proposal
        self.proposed.append(proposal)

    def get(self, job: JobId) -> Job | None:
        return self.job if job == JOB else None

    def of(self, job: JobId) -> list[Any]:
        return [self.held] if job == JOB else []

    def fail(self, held: Any, sentence: str) -> None:
        assert held is self.held
        self.failed.append(sentence)

    def tell_ready(self, held: Any, of: Plan) -> None:
        self.ready.append(of.generation)

    def give(self, job: Job, of: Plan, stages: list[StageIndex], donor: PeerId) -> None:
        self.given.append((stages[0], donor))

    def send(self, peer: PeerId, message: Message, payload: object = b"") -> bool:
        self.sent.append((peer, message))
        return True

    def hear(self, sender: Identity, message: Message) -> bool:
        return self.service.handle(sender.peer, message, NOTHING)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with asyncio.TaskGroup() as tasks:
        yield World(tasks)


def proposal(of: Plan, by: Identity = COORDINATOR) -> PlanProposal:
    return PlanProposal(plan=seal(by, PLAN, msgspec.msgpack.encode(of)))


@pytest.mark.parametrize(
    "order",
    [
        StageWanted(job=JOB, generation=1, stage=0),
        PlanStart(job=JOB, generation=2),
        LineCommitted(job=JOB, generation=1, step=5),
        ProposalWithdrawn(job=JOB, generation=2),
    ],
    ids=lambda order: type(order).__name__,
)
async def test_only_the_coordinator_gives_orders(world: World, order: Message) -> None:
    with pytest.raises(RemoteProtocolError, match="only a job's coordinator"):
        world.hear(OTHER, order)
    world.hear(COORDINATOR, order)


async def test_a_holder_takes_a_plan_that_moves_one_stage_to_somebody_else(world: World) -> None:
    assert world.hear(OTHER, proposal(PROPOSED))  # whoever passes it on
    assert (world.proposed, world.ready, world.given) == ([PROPOSED], [2], [])
    world.job.plan = PROPOSED
    assert world.hear(COORDINATOR, proposal(PROPOSED))
    assert len(world.proposed) == 1


async def test_whoever_is_given_the_stage_takes_it_from_who_has_it(world: World) -> None:
    world.job.plan = world.held.plan = plan(1, stage(0, OTHER), stage(1, COORDINATOR))
    world.held.stage = StageIndex(1)
    world.hear(COORDINATOR, proposal(plan(2, stage(0, ME, 2), stage(1, COORDINATOR))))
    assert world.given == [(0, OTHER.peer)]


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ((stage(0, NEWCOMER, 2), stage(1, NEWCOMER, 2)), "it does not move one stage"),
        ((stage(0, ME), stage(1, OTHER)), "it does not move one stage"),
        ((stage(0, ME),), "it does not move one stage"),
        ((stage(0, ME), stage(1, NEWCOMER, 1)), "changes hands in the incarnation it has"),
        ((stage(0, ME, 2), stage(1, NEWCOMER, 2)), "it changes stage 1 while its job trains"),
        (
            (stage(0, ME), msgspec.structs.replace(stage(1, NEWCOMER, 2), last=21)),
            "it changes stage 2 while its job trains",
        ),
    ],
)
async def test_a_proposal_that_changes_anything_else_is_refused(
    world: World, stages: tuple[StagePlan, ...], why: str
) -> None:
    with pytest.raises(RemoteProtocolError, match=why):
        world.hear(COORDINATOR, proposal(plan(2, *stages)))
    assert not world.proposed


async def test_nobody_else_proposes(world: World) -> None:
    with pytest.raises(RemoteProtocolError, match="does not coordinate its job"):
        world.hear(OTHER, proposal(PROPOSED, by=OTHER))
    assert not world.proposed


def sent(step: int) -> BoundaryTensor:
    fence = Fence(job=JOB, step=step, phase="train", source=0, target=1, sender=1, receiver=1)
    return BoundaryTensor(fence=fence, micro_batch=0, tensor=3, direction="forward", header=None)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_was_sent_is_sent_again_to_the_newcomer_alone_in_the_proposed_plan_and_once(
    world: World,
) -> None:
    world.hear(COORDINATOR, proposal(PROPOSED))
    world.pipeline.log.keep(sent(3))
    wanted = ReplayWanted(job=JOB, generation=2, stage=1, step=3)
    for stranger in (OTHER, COORDINATOR):
        with pytest.raises(RemoteProtocolError, match="by somebody who is not given the stage"):
            world.hear(stranger, wanted)
    with pytest.raises(RemoteProtocolError, match="by somebody who is not given the stage"):
        world.hear(NEWCOMER, msgspec.structs.replace(wanted, stage=7))
    assert world.hear(NEWCOMER, wanted)
    await turns()
    fence = msgspec.structs.replace(sent(3).fence, receiver=2)
    assert world.sent == [(NEWCOMER.peer, msgspec.structs.replace(sent(3), fence=fence))]
    with pytest.raises(RemoteProtocolError, match="asked for twice"):
        world.hear(NEWCOMER, wanted)
    world.pipeline.log.keep(msgspec.structs.replace(sent(3), fence=fence))  # it goes there anyway
    assert len(world.sent) == 1


async def test_what_is_kept_no_longer_is_said_so_and_ends_the_hand_over_there(world: World) -> None:
    world.hear(COORDINATOR, proposal(PROPOSED))
    world.hear(COORDINATOR, LineCommitted(job=JOB, generation=1, step=5))
    world.hear(NEWCOMER, ReplayWanted(job=JOB, generation=2, stage=1, step=3))
    await turns()
    [(peer, missing)] = world.sent
    assert peer == NEWCOMER.peer
    assert isinstance(missing, ReplayMissing)
    assert missing.sentence == "what was sent in step 3 is kept no longer, only from 5 on"
    world.held.donor, world.held.given = OTHER.peer, plan(2, stage(0, ME, 2), stage(1, OTHER))
    world.hear(OTHER, ReplayMissing(job=JOB, generation=1, stage=0, sentence="another plan"))
    assert world.failed == []
    world.hear(OTHER, ReplayMissing(job=JOB, generation=2, stage=0, sentence="the disk is full"))
    assert world.failed == [f"peer {OTHER.peer[:8]} says: the disk is full"]


async def test_a_newcomer_asks_the_others_and_who_had_its_stage_also_once_the_plan_is_known_to_all(
    world: World,
) -> None:
    steps = SimpleNamespace(step=3)
    world.pipeline.machine = SimpleNamespace(statistics=lambda: steps)
    world.pipeline.start = lambda: world.pipeline.on_want(Step(4))
    world.job.step, world.job.plan = 9, plan(2, stage(0, ME, 2), stage(1, OTHER))
    world.held.donor = NEWCOMER.peer
    world.held.given = world.held.plan = world.job.plan
    world.service._loaded(world.held)
    wanted = ReplayWanted(job=JOB, generation=2, stage=0, step=4)
    assert world.sent == [(NEWCOMER.peer, wanted), (OTHER.peer, wanted)]
    assert world.ready == []
    steps.step = 8
    world.pipeline.on_want(Step(9))
    world.pipeline.on_want(Step(10))
    assert world.ready == [2]


async def test_a_withdrawn_proposal_ends_what_was_to_be(world: World) -> None:
    world.hear(COORDINATOR, proposal(PROPOSED))
    world.hear(COORDINATOR, StageWanted(job=JOB, generation=1, stage=0))
    world.hear(COORDINATOR, StageWanted(job=JOB, generation=9, stage=0))
    assert world.copies == 1
    world.hear(NEWCOMER, ReplayWanted(job=JOB, generation=2, stage=1, step=3))
    await turns()
    world.hear(COORDINATOR, ProposalWithdrawn(job=JOB, generation=2))
    world.pipeline.log.keep(sent(3))
    assert world.sent == []
    world.held.donor, world.held.given = OTHER.peer, PROPOSED
    world.hear(COORDINATOR, ProposalWithdrawn(job=JOB, generation=2))
    assert world.failed == ["its coordinator leaves it where it is"]
