"""How much memory a job needs, and why peers cannot hold it."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from swarm.errors import CapacityError
from swarm.graph.dag import Graph
from swarm.ids import short
from swarm.schedule.table import StageTable, stage_table
from swarm.schedule.units import format_bytes, format_count
from swarm.schedule.workload import PeerOffer, Workload

_SHOWN_OFFERS: Final = 6
_SHOWN_TEXT: Final = 80


def memory_for_peers(workload: Workload, peers: int) -> int:
    """The least bytes that each of ``peers`` equal peers must offer so that together they can hold the job.

    Counts what ``swarm.schedule.memory`` counts, with the depths of 1F1B: the k-th of S stages has
    min(S - k, micro-batches) in flight. It is what the most loaded peer needs when the job is split as
    evenly as the operators allow, in as many stages as help; one byte less on each, and the job does not fit,
    unless stages recompute.
    """
    table = stage_table(workload.graph, workload.optimizer)
    return even_memory(table, micro_batches=workload.micro_batches, peers=peers)


def even_memory(table: StageTable, *, micro_batches: int, peers: int) -> int:
    """The same of a table: a dynamic program from the end, minimising the largest stage."""
    begins = np.flatnonzero(np.diff(table.starts, prepend=-1))
    after = np.full(table.places, math.inf)
    after[-1] = 0.0
    least = math.inf
    for left in range(1, min(peers, table.places - 1) + 1):
        needed = table.least_bytes(min(left, micro_batches))
        best = np.minimum.reduceat(np.maximum(needed, after[table.ends]), begins)
        after = np.append(best, math.inf)
        least = min(least, float(after[0]))
    return math.ceil(least)


def is_hopeless(table: StageTable, offers: Sequence[PeerOffer]) -> bool:
    """Whether sums alone show that these offers cannot hold the job, in any order and split anyhow."""
    if not offers:
        return True
    _, needed = _largest_piece(table)
    too_large = needed > max(offer.memory for offer in offers)
    return (
        too_large
        or bool(_lacking_everywhere(table, offers))
        or _alone(table, 0, table.places - 1) > sum(offer.memory for offer in offers)
    )


def capacity_error(table: StageTable, workload: Workload, offers: Sequence[PeerOffer]) -> CapacityError:
    """Why these offers cannot hold the job, in one line with the numbers; to be called where they cannot."""
    if not offers:
        return CapacityError("no peer offers memory to the job: start peers, or raise their --memory")
    total, largest = sum(offer.memory for offer in offers), max(offer.memory for offer in offers)
    count, micro_batches = len(offers), workload.micro_batches
    nowhere = _lacking_everywhere(table, offers)
    if nowhere:
        return CapacityError(f"nobody can run {nowhere[0]}: update torch, or start another peer")
    piece, needed = _largest_piece(table)
    if needed > largest:
        return CapacityError(
            f"{_piece_name(table, workload.graph, piece)} cannot be split and needs "
            f"{format_bytes(needed)}, but the largest of {format_count(count, 'peer')} offers "
            f"{format_bytes(largest)}: raise --memory, or make the micro-batches smaller"
        )
    alone = _alone(table, 0, table.places - 1)
    if alone > total:
        return CapacityError(
            f"the job needs {format_bytes(alone)}, {_offer(count)} {format_bytes(total)} together: "
            "start more peers or raise --memory"
        )
    each = even_memory(table, micro_batches=micro_batches, peers=count)
    if any(offer.lacks for offer in offers) and each <= min(offer.memory for offer in offers):
        return CapacityError(
            "the job does not fit where not every peer can run everything: update torch, or start more peers"
        )
    texts = {format_bytes(each), *(format_bytes(offer.memory) for offer in offers)}
    amount = format_bytes if len(texts) > 1 else _exactly
    shown = ", ".join(f"{short(offer.peer)} {amount(offer.memory)}" for offer in offers[:_SHOWN_OFFERS])
    more = f" and {count - _SHOWN_OFFERS} more" if count > _SHOWN_OFFERS else ""
    return CapacityError(
        f"the job does not fit: split as evenly as its operators allow it needs {amount(each)} on each "
        f"of {format_count(count, 'peer')}, and they offer {format_bytes(total)} together ({shown}{more}): "
        "start more peers or raise --memory"
    )


def _lacking_everywhere(table: StageTable, offers: Sequence[PeerOffer]) -> list[str]:
    """What the job needs and none of these peers has."""
    return sorted(name for name in table.needs if all(name in offer.lacks for offer in offers))


def _alone(table: StageTable, start: int, end: int) -> int:
    number = table.index(start, end)
    return math.ceil(float(table.fixed[number] + table.held[number]))


def _largest_piece(table: StageTable) -> tuple[int, int]:
    """The neediest part without a place inside: the place where it begins, and bytes that it takes for sure.

    Those are what the cheapest of all stages around it needs: a longer stage can need less than a shorter
    one, where what crosses its ends is smaller.
    """
    costs = np.full((table.places, table.places), math.inf)
    costs[table.starts, table.ends] = table.fixed + table.held
    from_end = np.minimum.accumulate(costs[:, ::-1], axis=1)[:, ::-1]
    around = np.minimum.accumulate(from_end, axis=0)
    needed = around[np.arange(table.places - 1), np.arange(1, table.places)]
    place = int(np.argmax(needed))
    return place, math.ceil(float(needed[place]))


def _piece_name(table: StageTable, graph: Graph, place: int) -> str:
    first, last = int(table.positions[place]), int(table.positions[place + 1])
    operators = graph.operators[first:last]
    paths = [operator.path for operator in operators if operator.path]
    where = f" in {paths[0][:_SHOWN_TEXT]}" if paths else ""
    name = operators[0].target.removeprefix("aten.")[:_SHOWN_TEXT]
    if len(operators) == 1:
        return f"the operator {name}{where}"
    return f"the part of {len(operators)} operators that begins with {name}{where}"


def _exactly(count: float) -> str:
    return f"{count:,.0f} B"


def _offer(count: int) -> str:
    return "the 1 peer offers" if count == 1 else f"the {count} peers offer"
