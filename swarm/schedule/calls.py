"""An operator with the tensors it reads and makes, as the cost rules of ``schedule`` look at it.

The rules see graphs that other peers wrote: whatever the shapes and arguments, they give a number and never
raise. Counts are floats, large ones saturate at ``MOST``.
"""

from dataclasses import dataclass
from typing import Final

from swarm.graph.dag import (
    Graph,
    Operator,
    Ref,
    Scalar,
    Sequence,
    TensorSpec,
    Value,
    operator_inputs,
    references,
)
from swarm.graph.operators import VIEWS
from swarm.ids import ValueId
from swarm.wire.tensors import dense_strides

MOST: Final = 1e24
"""No count is larger: sums of a million of them stay far below what a float can hold."""

_ATEN: Final = "aten."

_COPYING_VIEWS: Final = frozenset({"reshape", "reshape_as", "flatten", "ravel", "contiguous"})
"""Views that copy where the elements do not lie back to back; taken to copy wherever they do not."""


@dataclass(frozen=True, slots=True)
class Call:
    """One operator of ``graph``."""

    graph: Graph
    operator: Operator

    @property
    def name(self) -> str:
        """The operator's name without library and overload: ``linear`` for ``aten.linear.default``."""
        return self.operator.target.removeprefix(_ATEN).split(".")[0]

    @property
    def inputs(self) -> tuple[ValueId, ...]:
        """The values that it reads, each once."""
        return tuple(dict.fromkeys(operator_inputs(self.operator)))

    @property
    def outputs(self) -> tuple[ValueId, ...]:
        """The values that it makes and somebody uses."""
        return tuple(ValueId(value) for value in self.operator.outputs if value >= 0)

    @property
    def trained(self) -> bool:
        """Whether a gradient flows back through it."""
        return any(self.value(value).differentiable for value in self.outputs)

    def value(self, value: ValueId) -> Value:
        """The value of this number."""
        return self.graph.values[value]

    def tensor(self, position: int) -> TensorSpec | None:
        """The tensor at a position of the arguments, where there is one."""
        value = self.argument(position)
        return None if value is None else self.value(value).spec

    def argument(self, position: int) -> ValueId | None:
        """The value at a position of the arguments, where there is one."""
        if position < len(self.operator.args):
            argument = self.operator.args[position]
            if isinstance(argument, Ref):
                return ValueId(argument.value)
        return None

    def text(self, position: int) -> str:
        """The string at a position of the arguments; empty where there is none."""
        if position < len(self.operator.args):
            argument = self.operator.args[position]
            if isinstance(argument, Scalar) and isinstance(argument.value, str):
                return argument.value
        return ""

    def number(self, position: int) -> float:
        """The number at a position of the arguments; 0 where there is none."""
        if position < len(self.operator.args):
            argument = self.operator.args[position]
            if isinstance(argument, Scalar) and isinstance(argument.value, int):
                return saturated(float(argument.value))
        return 0.0

    def listed(self, position: int) -> tuple[TensorSpec, ...]:
        """The tensors of a list at a position of the arguments."""
        if position >= len(self.operator.args):
            return ()
        argument = self.operator.args[position]
        if not isinstance(argument, Sequence):
            return ()
        return tuple(self.value(ValueId(item.value)).spec for item in argument.items if isinstance(item, Ref))

    def made_elements(self) -> float:
        """Elements of all outputs."""
        return saturated(sum(elements(self.value(value).spec) for value in self.outputs))

    def touched_elements(self) -> float:
        """Elements of its largest input that is no parameter, or of its outputs where those are more."""
        read = (self.value(value) for value in self.inputs)
        largest = max((elements(value.spec) for value in read if value.kind != "parameter"), default=0.0)
        return max(largest, self.made_elements())


def elements(spec: TensorSpec) -> float:
    """Elements of a tensor."""
    return saturated(float(spec.elements))


def size(spec: TensorSpec, dimension: int) -> float:
    """One size of a tensor's shape; 1 where it has no such dimension."""
    return float(spec.shape[dimension]) if -len(spec.shape) <= dimension < len(spec.shape) else 1.0


def saturated(count: float) -> float:
    """``count``, or MOST where it is more."""
    return min(count, MOST)


def names(text: str) -> frozenset[str]:
    """The words of ``text``: a table of operator names that reads as one."""
    return frozenset(text.split())


def aliases(call: Call) -> dict[ValueId, ValueId]:
    """The outputs that lie in another value's memory, with that value."""
    if call.operator.target == "aten.broadcast_tensors.default":
        sources = [references(argument) for argument in call.operator.args[:1]]
        pairs = zip(call.operator.outputs, sources[0] if sources else (), strict=False)
        return {ValueId(made): source for made, source in pairs if made >= 0}
    source, first = call.argument(0), call.tensor(0)
    if call.operator.target not in VIEWS or source is None or first is None:
        return {}
    retyped = any(call.value(value).spec.dtype != first.dtype for value in call.outputs)
    if retyped and call.operator.target != "aten.view.dtype":
        return {}
    whole = first.strides == dense_strides(first.shape, tuple(range(len(first.shape))))
    if call.name in _COPYING_VIEWS and not whole:
        return {}
    return dict.fromkeys(call.outputs, source)
