"""What is to be placed on peers, and what peers offer for it."""

from dataclasses import dataclass

from swarm.graph.dag import Graph
from swarm.ids import PeerId
from swarm.wire.codecs import NO_COMPRESSION, Policy
from swarm.wire.records.manifest import Optimizer


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One job as planning sees it."""

    graph: Graph
    """The training graph, of one micro-batch."""
    evaluation: Graph
    """The evaluation graph over the same parameters."""
    optimizer: Optimizer
    micro_batches: int
    """Of one step."""
    policy: Policy = NO_COMPRESSION
    """How the codec of each boundary is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerOffer:
    """What one peer offers to a job."""

    peer: PeerId
    memory: int
    """Bytes for stages; see ``swarm.schedule.memory`` for what is counted."""
    flops: float
    """Operations a second, as the peer says."""
    lacks: frozenset[str] = frozenset()
    """Operators and data types that the peer cannot run; it gets no stage that needs one."""
