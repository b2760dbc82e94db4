"""Why a plan is as it is, in sentences for people."""

from collections.abc import Iterable, Sequence
from typing import Final

from swarm.graph.cut import sent_bytes
from swarm.graph.dag import Graph, Operator
from swarm.graph.stage import Edge, Stage
from swarm.ids import short
from swarm.schedule.codec_model import DENSE_BITS, bits_per_element
from swarm.schedule.cost import graph_costs
from swarm.schedule.partition import Partition, Segment
from swarm.schedule.units import format_bytes, format_count, format_seconds
from swarm.schedule.workload import PeerOffer
from swarm.wire.codecs import CodecSpec

MAX_LINES: Final = 1000
"""Lines that a plan may carry."""

_SHOWN_PATH: Final = 80


def explain(
    graph: Graph,
    stages: Sequence[Stage],
    found: Partition,
    offers: Sequence[PeerOffer],
    codecs: Sequence[CodecSpec],
    why: Sequence[str],
) -> tuple[str, ...]:
    """A line on the whole, one for each stage, ``why`` on codecs, and one on the peers that are not used."""
    costs, total = graph_costs(graph), len(found.segments)
    slowest = max(range(total), key=lambda index: found.segments[index].seconds)
    pace = f"a micro-batch takes {format_seconds(found.interval)} at the slowest, stage {slowest + 1}"
    lines = [f"{format_count(total, 'stage')} on {total} of {format_count(len(offers), 'peer')}; {pace}"]
    for index, (stage, segment) in enumerate(zip(stages, found.segments, strict=True)):
        share = costs.share(segment.first, segment.last)
        lines.append(
            f"stage {index + 1} of {total}: {_operators(graph, segment)} on "
            f"{_memory(segment, offers[segment.peer])}, {share:.0%} of the compute; {_traffic(graph, stage)}"
            f"{_encoded(codecs[index])}{_recomputed(segment)}"
        )
    lines += why
    used = {segment.peer for segment in found.segments}
    spare = [offer for index, offer in enumerate(offers) if index not in used]
    if spare:
        names = ", ".join(short(offer.peer) for offer in spare[:10])
        more = f" and {len(spare) - 10} more" if len(spare) > 10 else ""
        lines.append(f"not needed: {names}{more}; with them the slowest part would be no faster")
    return tuple(lines[:MAX_LINES])


def _operators(graph: Graph, segment: Segment) -> str:
    count = segment.last - segment.first
    operators = graph.operators[segment.first : segment.last]
    first, last = _path(operators), _path(reversed(operators))
    where = f" {first}" if first == last else f" {first} - {last}"
    return f"{format_count(count, 'operator')}{where if first else ''}"


def _path(operators: Iterable[Operator]) -> str:
    """The module of the first of these operators that has one."""
    return next((operator.path[:_SHOWN_PATH] for operator in operators if operator.path), "")


def _memory(segment: Segment, offer: PeerOffer) -> str:
    return f"peer {short(offer.peer)}, {format_bytes(segment.memory)} of {format_bytes(offer.memory)}"


def _traffic(graph: Graph, stage: Stage) -> str:
    """What the stage's links carry for a micro-batch, activations and gradients together."""
    received = _bytes(graph, stage.incoming) + _bytes(graph, _returned(stage.outgoing))
    sent = _bytes(graph, stage.outgoing) + _bytes(graph, _returned(stage.incoming))
    return f"receives {format_bytes(received)} and sends {format_bytes(sent)} per micro-batch"


def _encoded(codec: CodecSpec) -> str:
    if codec == CodecSpec():
        return ""
    bits = f"{bits_per_element(codec):.2g} bits of {DENSE_BITS} an element"
    return f", before it is encoded as {codec}: about {bits}"


def _recomputed(segment: Segment) -> str:
    if not segment.recompute:
        return ""
    return f"; runs each forward twice, since without that it needs {format_bytes(segment.plain_memory)}"


def _returned(edges: Iterable[Edge]) -> list[Edge]:
    return [edge for edge in edges if edge.gradient]


def _bytes(graph: Graph, edges: Iterable[Edge]) -> int:
    return sum(sent_bytes(graph.values[edge.value].spec) for edge in edges)
