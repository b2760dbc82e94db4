"""Carries out what the coordination machines decide of stages that change hands (decision 0028)."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import assert_never

import msgspec

from swarm.errors import CapacityError, RemoteProtocolError
from swarm.identity.envelope import PLAN, seal
from swarm.ids import PeerId, Step
from swarm.protocol.coordination_events import (
    Event,
    MakeSuccessor,
    Moving,
    OrderCopy,
    Propose,
    SuccessorImpossible,
    SuccessorMade,
    SwitchPlan,
    Withdraw,
)
from swarm.protocol.lines import Line
from swarm.services.context import Context
from swarm.services.coordinated import Coordinated
from swarm.services.job_blocks import JobBlocks
from swarm.services.job_check import check_state
from swarm.services.lines import LineBook
from swarm.services.successors import made_successor
from swarm.wire.messages.coordination import PlanStart
from swarm.wire.messages.handover import PlanProposal, ProposalWithdrawn, StageWanted
from swarm.wire.records.plan import Plan
from swarm.wire.records.state import JobSnapshot


class Proposals:
    """The coordinator's part in hand-overs. ``boundary`` goes around what is done for a job."""

    def __init__(
        self,
        context: Context,
        blocks: JobBlocks,
        lines: LineBook,
        *,
        feed: Callable[[Coordinated, Event], None],
        boundary: Callable[[Coordinated], AbstractContextManager[None]],
    ) -> None:
        self._context = context
        self._blocks = blocks
        self._lines = lines
        self._feed = feed
        self._boundary = boundary

    def perform(self, running: Coordinated, action: Moving) -> None:
        """Do what the machine says."""
        match action:
            case OrderCopy(plan=plan, stage=stage):
                wanted = StageWanted(job=plan.job, generation=plan.generation, stage=stage)
                self._context.send(PeerId(plan.stages[stage].holder), wanted)
            case MakeSuccessor():
                self._context.tasks.create_task(self._succeed(running, action), name="plan a hand-over")
            case Propose(plan=plan):
                self._context.tasks.create_task(self._propose(running, plan), name="propose a plan")
            case Withdraw(plan=plan):
                for holder in holders_of(plan):
                    withdrawn = ProposalWithdrawn(job=plan.job, generation=plan.generation)
                    self._context.send(holder, withdrawn)
            case SwitchPlan(plan=plan, recorder=recorder):
                self._context.send(recorder, PlanStart(job=plan.job, generation=plan.generation))
            case _:
                assert_never(action)

    async def _succeed(self, running: Coordinated, action: MakeSuccessor) -> None:
        with self._boundary(running):
            graphs, copy = await asyncio.shield(running.graphs), action.copy
            state = JobSnapshot(format=1, step=copy.step, tensors=copy.tensors)
            try:
                check_state(state, copy.step, running.job.manifest)
                plan = await asyncio.to_thread(made_successor, graphs, action)
                line = Line(step=Step(copy.step), tensors=copy.tensors)
                plan = await self._blocks.begun_at(running.job, plan, line)
            except (CapacityError, RemoteProtocolError) as error:
                self._feed(running, SuccessorImpossible(copy=copy, sentence=str(error)))
            else:
                self._feed(running, SuccessorMade(copy=copy, plan=plan))

    async def _propose(self, running: Coordinated, plan: Plan) -> None:
        with self._boundary(running):
            await self._lines.keep_generation(running.job, plan.generation)
            running.proposed = seal(self._context.identity, PLAN, msgspec.msgpack.encode(plan))
            present = holders_of(running.machine.plan) if running.machine.plan is not None else ()
            for holder in dict.fromkeys((*present, *holders_of(plan))):
                self._context.send(holder, PlanProposal(plan=running.proposed))


def holders_of(plan: Plan) -> tuple[PeerId, ...]:
    """Who holds stages by ``plan``, each once."""
    return tuple(dict.fromkeys(PeerId(stage.holder) for stage in plan.stages))
