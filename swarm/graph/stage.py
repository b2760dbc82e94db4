"""What one stage of an OP-DAG is: the operators it runs, the tensors it holds, and what crosses its bounds.

Plain data, made by ``swarm.graph.cut`` for training and by ``swarm.graph.evaluation`` for evaluation.
"""

from dataclasses import dataclass

from swarm.graph.dag import Graph, Update
from swarm.ids import OperatorIndex, StageIndex, ValueId


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A boundary tensor on one hop, seen from a stage.

    ``stage`` is the other end: where an incoming tensor comes from, where an outgoing one goes. A tensor
    that several later stages use is relayed from each to the next, so a stage has it from one stage and
    hands it to one at most. ``gradient``: whether its gradient comes back over the same hop.
    """

    value: ValueId
    stage: StageIndex
    gradient: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorUse:
    """A parameter or buffer that a stage holds.

    ``operators`` are those of the stage that read it, in order; none where it is only replaced, or becomes
    the new value of a buffer. ``owned``: this stage updates it and answers for it; every tensor that the
    graph uses is owned by exactly one stage.
    """

    value: ValueId
    operators: tuple[OperatorIndex, ...]
    owned: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a graph. All tuples are in ascending order."""

    index: StageIndex
    operators: tuple[OperatorIndex, ...]
    """What the stage runs, recomputed operators included."""
    recomputed: tuple[OperatorIndex, ...]
    """Source-less operators among them (masks, position ids): every stage that needs one runs it."""
    inputs: tuple[ValueId, ...]
    """Model inputs that the stage reads."""
    parameters: tuple[TensorUse, ...]
    buffers: tuple[TensorUse, ...]
    constants: tuple[ValueId, ...]
    updates: tuple[Update, ...]
    """New values of owned buffers."""
    incoming: tuple[Edge, ...]
    outgoing: tuple[Edge, ...]
    loss: bool
    """Whether the loss is made here. Of a cut for training, that is the last stage."""
    outputs: tuple[ValueId, ...]
    """Outputs of the graph, beside the loss, that are made here."""
    metric: bool = False
    """Whether the metric of an evaluation graph is made here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedUse:
    """One operator that reads a shared parameter, and the stage that runs it."""

    operator: OperatorIndex
    stage: StageIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParameter:
    """A trained parameter that several operators use, wherever they are (decision D4, RAD).

    Each use has a gradient of its own; the owner, the stage of the first use, sums them in operator order
    at the step boundary (decision D5), updates the parameter and returns its value.
    """

    parameter: ValueId
    owner: StageIndex
    uses: tuple[SharedUse, ...]
    """In operator order."""

    @property
    def users(self) -> tuple[StageIndex, ...]:
        """The stages beside the owner that need its value, in order."""
        return tuple(sorted({use.stage for use in self.uses} - {self.owner}))


def tensor_names(graph: Graph, stage: Stage) -> tuple[str, ...]:
    """The names of the parameters, buffers and constants that a holder of ``stage`` needs, in order."""
    held = [use.value for use in (*stage.parameters, *stage.buffers)]
    return tuple(graph.values[value].name for value in (*held, *stage.constants))
