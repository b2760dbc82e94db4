"""What the boundaries of a plan put on the links between its peers, by resource (decision D6).

A peer's uplink carries the activations that its stages send and the gradients that they return, its downlink
what comes the other way. A pair's rate is that of the slower end, so the sum over a resource is never too
short. Of a pair without a rate nothing is known that a codec would have to make up for.
"""

from collections.abc import Container, Sequence
from typing import Literal

from swarm.graph.cut import sent_bytes
from swarm.graph.dag import Graph
from swarm.graph.stage import Stage
from swarm.ids import PeerId, ValueId
from swarm.schedule.deadline import Resource, Transfer
from swarm.schedule.network import NetworkModel
from swarm.wire.tensors import FLOATING, ITEM_BYTES


def resources_of(
    graph: Graph,
    stages: Sequence[Stage],
    holders: Sequence[PeerId],
    network: NetworkModel,
    lossy: Container[ValueId],
) -> tuple[Resource, ...]:
    """The up- and downlinks that are busy in a micro-batch.

    ``lossy`` has the tensors that codecs take (:func:`swarm.graph.dag.activations`).
    """
    found: dict[tuple[PeerId, Literal["up", "down"]], list[Transfer]] = {}
    for stage in stages:
        for edge in stage.outgoing:
            spec = graph.values[edge.value].spec
            for backward in (False, True) if edge.gradient else (False,):
                ends = (holders[stage.index], holders[edge.stage])
                sender, receiver = reversed(ends) if backward else ends
                rate = network.rate(sender, receiver)
                if sender == receiver or rate is None:
                    continue
                width = ITEM_BYTES[spec.dtype]
                transfer = Transfer(
                    boundary=stage.index,
                    backward=backward,
                    elements=sent_bytes(spec) // width,
                    width=width,
                    rate=rate,
                    lossy=edge.value in lossy and spec.dtype in FLOATING,
                )
                found.setdefault((sender, "up"), []).append(transfer)
                found.setdefault((receiver, "down"), []).append(transfer)
    return tuple(map(tuple, found.values()))


def slowest_compute(holders: Sequence[PeerId], seconds: Sequence[float]) -> float:
    """Seconds of a micro-batch on the peer whose stages take longest together."""
    each: dict[PeerId, float] = {}
    for holder, more in zip(holders, seconds, strict=True):
        each[holder] = each.get(holder, 0.0) + more
    return max(each.values(), default=0.0)
