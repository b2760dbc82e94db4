"""Plans: which peer holds which operators, and why (decision D7)."""

import math
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from swarm.errors import CapacityError
from swarm.graph.cut import cut, sent_bytes
from swarm.graph.dag import Graph, activations
from swarm.graph.evaluation import evaluation_stages
from swarm.graph.stage import Stage
from swarm.ids import JobId, PeerId
from swarm.schedule.capacity import capacity_error, is_hopeless
from swarm.schedule.chain import Chain
from swarm.schedule.deadline import Deadline, choose
from swarm.schedule.explanation import explain
from swarm.schedule.hiding import what_hides
from swarm.schedule.lacking import explain_lacking, job_needs, unable
from swarm.schedule.network import UNKNOWN, NetworkModel
from swarm.schedule.orders import fitting_order, likely_orders
from swarm.schedule.partition import SLACK, Partition, partition
from swarm.schedule.policies import BoundaryTimes, choose_codecs
from swarm.schedule.quality import admitted, ladder
from swarm.schedule.table import StageTable, stage_table
from swarm.schedule.transfers import resources_of, slowest_compute
from swarm.schedule.workload import PeerOffer, Workload
from swarm.wire.codecs import CodecSpec
from swarm.wire.records.plan import Plan, StagePlan

MAX_PEERS: Final = 128
"""Peers that one plan considers: those that offer the most memory, then speed."""

FEW_PEERS: Final = 16
"""Up to so many peers, the best of the likely orders is taken; of more, the first that can hold the job."""

Placed = tuple[Partition, tuple[PeerOffer, ...]]
Needed = Sequence[frozenset[str]]
LaidOut = tuple[Partition, tuple[PeerOffer, ...], tuple[Stage, ...], tuple[Stage, ...]]


def make_plan(
    job: JobId,
    workload: Workload,
    offers: Sequence[PeerOffer],
    *,
    network: NetworkModel = UNKNOWN,
    generation: int = 0,
    step: int = 0,
) -> Plan:
    """The best plan for ``workload`` on the peers that offer themselves; the same from the same arguments.

    Incarnations are 0: the coordinator, who knows what changes hands, fills them in. Raises CapacityError
    where the peers cannot hold the job, and CaptureError where the two graphs do not go together.
    """
    needed = job_needs(workload)
    usable = _usable(offers, frozenset[str]().union(*needed))
    try:
        found, chain, stages, evaluations = _lay_out(workload, usable, network, needed)
    except CapacityError as error:
        raise CapacityError("; ".join([str(error), *explain_lacking(usable)])) from None
    holders = [chain[segment.peer].peer for segment in found.segments]
    seconds = [segment.seconds for segment in found.segments]
    codecs, why = _codecs(workload, stages, holders, seconds, network)
    return Plan(
        format=1,
        job=job,
        generation=generation,
        step=step,
        stages=tuple(
            StagePlan(
                first=segment.first,
                last=segment.last,
                evaluation=tuple(int(index) for index in evaluation.operators),
                holder=chain[segment.peer].peer,
                incarnation=0,
                depth=segment.depth,
                memory=segment.memory,
                seconds=segment.seconds,
                codec=codec,
                recompute=segment.recompute,
            )
            for segment, evaluation, codec in zip(found.segments, evaluations, codecs, strict=True)
        ),
        explanation=(
            *explain(workload.graph, stages, found, chain, codecs, why),
            *explain_lacking(usable),
        ),
    )


def _codecs(
    workload: Workload,
    stages: Sequence[Stage],
    holders: Sequence[PeerId],
    seconds: Sequence[float],
    network: NetworkModel,
) -> tuple[tuple[CodecSpec, ...], tuple[str, ...]]:
    """The codec of what each stage sends forward, and what there is to say about that."""
    quality = workload.policy.quality
    if quality is None:
        times = _times(workload.graph, stages, network.seconds_per_byte(holders))
        return choose_codecs(workload.policy, BoundaryTimes(seconds=times)), ()
    graph = workload.graph
    deadline = Deadline(
        boundaries=len(stages),
        resources=resources_of(graph, stages, holders, network, activations(graph)),
        compute=slowest_compute(holders, seconds),
    )
    rungs = ladder()
    chosen = choose(deadline, admitted(rungs, quality))
    return tuple(rung.codec for rung in chosen), what_hides(deadline, chosen, quality, rungs)


def _times(
    graph: Graph, stages: Sequence[Stage], seconds_per_byte: NDArray[np.float64] | None
) -> list[float]:
    """Of each boundary's tensors, dense. Where no rate is known, bytes stand for seconds."""
    seconds = []
    for stage in stages:
        hops = [(int(edge.stage), sent_bytes(graph.values[edge.value].spec)) for edge in stage.outgoing]
        rates = {to: 1.0 if seconds_per_byte is None else seconds_per_byte[stage.index, to] for to, _ in hops}
        seconds.append(sum(size * float(rates[to]) for to, size in hops))
    return seconds


def _lay_out(
    workload: Workload, offers: Sequence[PeerOffer], network: NetworkModel, needed: Needed
) -> LaidOut:
    """The best partition, with the stages of both graphs, among peers that can run their part of either."""
    left = list(offers)
    while True:
        found, chain = _place(workload, left, network, needed)
        stages = cut(workload.graph, [0, *(segment.last for segment in found.segments)])
        evaluations = evaluation_stages(workload.graph, stages, workload.evaluation)
        holders = [chain[segment.peer] for segment in found.segments]
        out = {holders[index].peer for index in unable(workload, evaluations, holders)}
        if not out:
            return found, chain, stages, evaluations
        left = [offer for offer in left if offer.peer not in out]


def _place(workload: Workload, offers: Sequence[PeerOffer], network: NetworkModel, needed: Needed) -> Placed:
    """The best partition; one with stages that recompute only where there is none without.

    Raises CapacityError where there is none at all.
    """
    for recompute in (False, True):
        table = stage_table(workload.graph, workload.optimizer, recompute=recompute, needed=needed)
        if is_hopeless(table, offers):
            break
        placed = _place_on(table, offers, network, workload.micro_batches)
        if placed is not None:
            return placed
    raise capacity_error(table, workload, offers)


def _place_on(
    table: StageTable, offers: Sequence[PeerOffer], network: NetworkModel, micro_batches: int
) -> Placed | None:
    """The best partition over the orders that are tried, with its order."""
    found: list[Placed] = []
    orders = list(likely_orders(offers))
    for order in orders if len(offers) <= FEW_PEERS else orders[:2]:
        placed = _partition(table, order, network, micro_batches)
        if placed is not None:
            found.append(placed)
            if len(order) > FEW_PEERS:
                break
    if not found:
        fitting = fitting_order(table, offers, micro_batches=micro_batches)
        placed = _partition(table, fitting, network, micro_batches) if fitting else None
        found = [placed] if placed is not None else []
    least = min((placed.interval for placed, _ in found), default=math.inf) * (1.0 + SLACK)
    good = [placed for placed in found if placed[0].interval <= least]
    return min(good, key=lambda placed: (placed[0].traffic, placed[0].interval), default=None)


def _partition(
    table: StageTable, order: tuple[PeerOffer, ...], network: NetworkModel, micro_batches: int
) -> Placed | None:
    chain = Chain(
        memory=tuple(offer.memory for offer in order),
        flops=tuple(offer.flops for offer in order),
        lacks=tuple(offer.lacks for offer in order),
        seconds_per_byte=network.seconds_per_byte([offer.peer for offer in order]),
    )
    found = partition(table, chain, micro_batches=micro_batches)
    return None if found is None else (found, order)


def _usable(offers: Iterable[PeerOffer], needed: frozenset[str]) -> list[PeerOffer]:
    """One offer a peer, with memory, with a speed that can be reckoned with, and what it lacks of the needed.

    A speed is the peer's own claim. One that is no positive number counts as the lowest that another
    claims.
    """
    latest = {offer.peer: offer for offer in offers if offer.memory > 0}
    speeds = [offer.flops for offer in latest.values() if _is_speed(offer.flops)]
    slowest = min(speeds, default=1.0)
    sound = [
        PeerOffer(
            peer=offer.peer,
            memory=offer.memory,
            flops=offer.flops if _is_speed(offer.flops) else slowest,
            lacks=offer.lacks & needed,
        )
        for offer in latest.values()
    ]
    return sorted(sound, key=lambda offer: (-offer.memory, -offer.flops, offer.peer))[:MAX_PEERS]


def _is_speed(flops: float) -> bool:
    return math.isfinite(flops) and flops > 0
