"""One run of an example in four stages, with the codecs that a policy chooses on its boundaries.

Everything runs in one process, on the bits that a swarm of like machines would have
(``swarm.train.lockstep``), so that only the codecs differ from one run to the next.
"""

import statistics
from collections.abc import Mapping
from dataclasses import replace as replaced
from itertools import pairwise
from pathlib import Path
from typing import Final

import torch
from msgspec import Struct
from msgspec.structs import replace

from swarm.compress.boundaries import Boundaries, Passage
from swarm.compress.ladder import TakenApart
from swarm.graph.cut import cut, sent_bytes
from swarm.graph.dag import Graph, activations
from swarm.ids import JobId, PeerId, ValueId
from swarm.schedule.capacity import memory_for_peers
from swarm.schedule.deadline import Deadline, choose
from swarm.schedule.network import NetworkModel
from swarm.schedule.plan import make_plan
from swarm.schedule.quality import admitted, ladder
from swarm.schedule.transfers import resources_of, slowest_compute
from swarm.schedule.workload import PeerOffer, Workload
from swarm.services.training.author import PreparedJob, prepare_job
from swarm.services.training.verify import lockstep_job
from swarm.train.job import load_job
from swarm.train.lockstep import Lockstep
from swarm.train.optimizer import to_manifest
from swarm.wire.codecs import CodecSpec, Quality, parse_policy
from swarm.wire.records.plan import Plan

CPU: Final = torch.device("cpu")
STAGES: Final = 4
EXAMPLES: Final = Path(__file__).parents[2] / "examples"
OWN_MASKS: Final = "topk:10%:8, gradients on masks of their own"
"""The row that shows why a gradient goes back on its activation's mask."""
TOO_SLOW: Final = (20.0, 3.0, 0.5)
"""How many times too slow the three links are for ``deadline``, for what crosses them dense to hide."""
TAIL: Final = 10
"""A tenth of the steps, the last, is what the loss in training is the mean of."""


class Run(Struct, frozen=True, kw_only=True):
    """What one run came to."""

    model: str
    policy: str
    seed: int
    steps: int
    codecs: tuple[str, ...]
    """By stage."""
    trained: float
    """Mean loss of the last tenth of the steps."""
    held_out: float
    """Loss on samples never trained on, with the codecs on the boundaries as in training."""
    held_out_plain: float
    """The same without codecs."""
    sent: int
    """Bytes of all boundary tensors, both ways, in training."""


class Counting(Boundaries):
    """Boundaries that count the bytes of what they send in training."""

    bytes = 0

    def send(
        self, tensors: Mapping[ValueId, torch.Tensor], passage: Passage, codecs: Mapping[ValueId, CodecSpec]
    ) -> dict[ValueId, TakenApart]:
        """Those of :class:`Boundaries`."""
        sent = super().send(tensors, self._passage(passage), codecs)
        if passage.phase == "train":
            self.bytes += sum(apart.encode().payload.nbytes for apart in sent.values())
        return sent

    def _passage(self, passage: Passage) -> Passage:
        return passage


class OwnMasks(Counting):
    """Boundaries that choose the entries of a gradient by its own magnitudes, as if it were an activation."""

    def _passage(self, passage: Passage) -> Passage:
        return (
            replaced(passage, direction="forward", phase="evaluate") if passage.phase == "train" else passage
        )


def prepared_example(model: str, seed: int, share: float) -> PreparedJob:
    """The example with its order of samples, and its initial weights, by ``seed``; a share of its steps."""
    job = load_job(EXAMPLES / f"{model}.py")
    torch.manual_seed(seed)
    return prepare_job(
        replaced(job, model=type(job.model)(), seed=seed, steps=max(1, int(job.steps * share)))
    )


def run(prepared: PreparedJob, policy: str, plan: Plan) -> Run:
    """Train with the codecs of ``plan``, which is that of ``policy``, and evaluate with and without them."""
    kind = OwnMasks if policy == OWN_MASKS else Counting
    bounds = [0, *(stage.last for stage in plan.stages)]
    job = lockstep_job(prepared, cancelled=lambda: False)
    lockstep = Lockstep(job, bounds, CPU, [stage.codec for stage in plan.stages])
    counting = [kind(job.seed, CPU) for _ in plan.stages]
    lockstep.boundaries[:] = counting
    losses = [lockstep.step(step).loss for step in range(job.steps)]
    held_out = lockstep.validate().loss
    codecs = tuple(str(stage.codec) for stage in plan.stages)
    plain = held_out
    if any(codec != "fp32" for codec in codecs):
        plain = Lockstep(replaced(job, tensors=lockstep.tensors(), steps=0), bounds, CPU).validate().loss
    return Run(
        model=prepared.job.name,
        policy=policy,
        seed=job.seed,
        steps=job.steps,
        codecs=codecs,
        trained=statistics.fmean(losses[-max(1, len(losses) // TAIL) :]),
        held_out=held_out,
        held_out_plain=plain,
        sent=sum(boundaries.bytes for boundaries in counting),
    )


def plan_for(prepared: PreparedJob, policy: str) -> Plan:
    """What a coordinator would make of it with four equal peers.

    ``deadline`` also needs rates: its links are ``TOO_SLOW``.
    """
    chosen = parse_policy(policy.split(",", maxsplit=1)[0])
    workload = Workload(
        graph=prepared.captured.train,
        evaluation=prepared.captured.evaluate,
        optimizer=to_manifest(prepared.job.optimizer),
        micro_batches=prepared.job.micro_batches,
        policy=chosen,
    )
    memory = memory_for_peers(workload, STAGES)
    peers = [PeerOffer(peer=PeerId(f"{number}" * 32), memory=memory, flops=1e9) for number in "abcd"]
    plan = make_plan(JobId("j" * 52), workload, peers)
    return plan if chosen.quality is None else _with_deadline(plan, workload.graph, chosen.quality)


def _with_deadline(plan: Plan, graph: Graph, quality: Quality) -> Plan:
    """``plan`` with the codecs that it would have on links that are ``TOO_SLOW``."""
    stages = cut(graph, [0, *(stage.last for stage in plan.stages)])
    holders = [PeerId(stage.holder) for stage in plan.stages]
    compute = slowest_compute(holders, [stage.seconds for stage in plan.stages])
    rates: dict[tuple[PeerId, PeerId], float] = {}
    for stage, (sender, receiver), times in zip(stages[:-1], pairwise(holders), TOO_SLOW, strict=True):
        dense = sum(sent_bytes(graph.values[edge.value].spec) for edge in stage.outgoing)
        rates[sender, receiver] = rates[receiver, sender] = dense / (times * compute)
    network = NetworkModel(rates=rates)
    resources = resources_of(graph, stages, holders, network, activations(graph))
    deadline = Deadline(boundaries=len(stages), resources=resources, compute=compute)
    chosen = choose(deadline, admitted(ladder(), quality))
    pairs = zip(plan.stages, chosen, strict=True)
    return replace(plan, stages=tuple(replace(stage, codec=rung.codec) for stage, rung in pairs))
