"""The OP-DAG: a captured model as plain data, in functional form and topological order (decision D4).

A graph is a list of *values* (tensors) and a list of *operators*. A value is a model input, a parameter, a
buffer, a constant, or an output of one operator. Operators name their inputs by ``ValueId`` and list their
outputs, so an operator with several outputs can never be cut from its selections. No operator writes to
its inputs; a buffer that the model changes appears in ``updates`` with the value that replaces it.

Nothing in here can run code: targets are names that an executor looks up in its allow-list
(``swarm.graph.operators``), arguments are closed tagged unions, and decoding is strict.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from swarm.errors import RemoteProtocolError
from swarm.graph.operators import ALLOWED
from swarm.ids import OperatorIndex, ValueId
from swarm.wire.limits import MAX_OPERATORS, MAX_TENSOR_BYTES
from swarm.wire.tensors import FLOATING, ITEM_BYTES, DType, Sizes
from swarm.wire.text import Name, Place

FORMAT: Final = 1

TENSOR_KINDS: Final = frozenset({"parameter", "buffer", "constant"})
"""Values that a job has as tensors, each under a name of its own."""

Index = Annotated[int, Meta(ge=0, lt=2**31)]


class TensorSpec(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Data type, shape and strides (in elements) of a tensor, as capture saw them."""

    dtype: DType
    shape: Sizes
    strides: Sizes

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without gaps."""
        return self.elements * ITEM_BYTES[self.dtype]


class Value(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One tensor of the graph.

    ``name`` is the parameter's or buffer's fully qualified name, the input's position (``input.0``), or the
    name capture gave to an operator's output. ``differentiable`` is true where a gradient with respect to
    this value is needed: it is floating, depends on a trained parameter, and the loss depends on it.
    """

    kind: Literal["input", "parameter", "buffer", "constant", "output"]
    name: Name
    spec: TensorSpec
    differentiable: bool


class Ref(Struct, frozen=True, array_like=True, tag="v", forbid_unknown_fields=True):
    """An argument that is a value of the graph."""

    value: Index


class Scalar(Struct, frozen=True, array_like=True, tag="s", forbid_unknown_fields=True):
    """An argument that is a number, a truth value, a short string (an enumeration's member) or absent."""

    value: bool | int | float | Annotated[str, Meta(max_length=64)] | None


class TypeName(Struct, frozen=True, array_like=True, tag="t", forbid_unknown_fields=True):
    """A data type as an argument."""

    name: DType


class MemoryFormat(Struct, frozen=True, array_like=True, tag="m", forbid_unknown_fields=True):
    """A memory format as an argument."""

    name: Literal["contiguous_format", "preserve_format", "channels_last", "channels_last_3d"]


class Device(Struct, frozen=True, array_like=True, tag="d", forbid_unknown_fields=True):
    """A device as an argument: always the executor's own."""


Item = Ref | Scalar | TypeName | MemoryFormat | Device


class Sequence(Struct, frozen=True, array_like=True, tag="l", forbid_unknown_fields=True):
    """A list as an argument. No operator takes lists of lists, so nothing here can be nested deeply."""

    items: Annotated[tuple[Item, ...], Meta(max_length=65536)]


Argument = Item | Sequence


class Operator(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One call of an allow-listed ATen operator.

    ``target`` is its full name (``aten.linear.default``). ``outputs`` has one entry per tensor that the
    operator returns: the value, or -1 where nothing uses it. ``path`` is the module it came from
    (``blocks.2.attention``), ``source`` the line of the author's code where torch knows it; both are for
    people. ``random`` operators draw from a generator seeded by (job, step, micro-batch, operator).
    """

    target: Name
    args: Annotated[tuple[Argument, ...], Meta(max_length=64)]
    kwargs: Annotated[tuple[tuple[Name, Argument], ...], Meta(max_length=64)]
    outputs: Annotated[tuple[Annotated[int, Meta(ge=-1, lt=2**31)], ...], Meta(min_length=1, max_length=4096)]
    path: Place
    source: Place
    random: bool


class Update(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A buffer and the value that replaces it after a forward pass."""

    buffer: Index
    value: Index


class Graph(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A captured model with its loss.

    ``outputs`` are the values that the model returned beside the loss (kept for metrics); ``loss`` is a
    scalar. Values of kind input, parameter, buffer and constant come first, in that order.
    """

    format: Literal[1]
    mode: Literal["train", "evaluate"]
    values: Annotated[tuple[Value, ...], Meta(max_length=4 * MAX_OPERATORS)]
    operators: Annotated[tuple[Operator, ...], Meta(max_length=MAX_OPERATORS)]
    loss: Index
    outputs: Annotated[tuple[Index, ...], Meta(max_length=4096)]
    updates: Annotated[tuple[Update, ...], Meta(max_length=MAX_OPERATORS)]
    metric: Index | None = None
    """What an author wants measured beside the loss in evaluation, a scalar that an operator makes."""

    @property
    def measures(self) -> frozenset[ValueId]:
        """The loss and the metric, if there is one: what the last stage makes."""
        return frozenset(ValueId(value) for value in (self.loss, self.metric) if value is not None)

    def inputs(self) -> tuple[ValueId, ...]:
        """The model's inputs, in the order of the dataset's fields."""
        return self.of_kind("input")

    def tensors(self) -> dict[str, Value]:
        """The parameters, buffers and constants by name."""
        return {value.name: value for value in self.values if value.kind in TENSOR_KINDS}

    def of_kind(self, kind: str) -> tuple[ValueId, ...]:
        """The values of one kind, in order."""
        return tuple(ValueId(i) for i, value in enumerate(self.values) if value.kind == kind)


def references(argument: Argument) -> tuple[ValueId, ...]:
    """The values that ``argument`` mentions, in order, repeats included."""
    match argument:
        case Ref(value=value):
            return (ValueId(value),)
        case Sequence(items=items):
            return tuple(ValueId(item.value) for item in items if isinstance(item, Ref))
        case _:
            return ()


def operator_inputs(operator: Operator) -> tuple[ValueId, ...]:
    """The values that ``operator`` reads, in argument order, repeats included."""
    positional = [value for argument in operator.args for value in references(argument)]
    named = [value for _, argument in operator.kwargs for value in references(argument)]
    return tuple(positional + named)


def producers(graph: Graph) -> dict[ValueId, OperatorIndex]:
    """The operator that makes each value of kind output."""
    return {
        ValueId(value): OperatorIndex(index)
        for index, operator in enumerate(graph.operators)
        for value in operator.outputs
        if value >= 0
    }


def consumers(graph: Graph) -> dict[ValueId, tuple[OperatorIndex, ...]]:
    """The operators that read each value, in topological order, each once."""
    found: dict[ValueId, list[OperatorIndex]] = {}
    for index, operator in enumerate(graph.operators):
        for value in dict.fromkeys(operator_inputs(operator)):
            found.setdefault(value, []).append(OperatorIndex(index))
    return {value: tuple(users) for value, users in found.items()}


def activations(graph: Graph) -> frozenset[ValueId]:
    """What the model makes of its inputs with its parameters.

    Neither parameters and what is made of them alone, nor what inputs, buffers and constants alone decide,
    such as masks and position ids.
    """
    of_inputs = set(graph.of_kind("input"))
    of_parameters = set(graph.of_kind("parameter"))
    for operator in graph.operators:
        made = [ValueId(value) for value in operator.outputs if value >= 0]
        read = operator_inputs(operator)
        if not of_inputs.isdisjoint(read):
            of_inputs.update(made)
        if not of_parameters.isdisjoint(read):
            of_parameters.update(made)
    return frozenset(of_inputs & of_parameters)


def encode_graph(graph: Graph) -> bytes:
    """The bytes of a graph's block."""
    return msgspec.msgpack.encode(graph)


def decode_graph(data: bytes) -> Graph:
    """The graph in ``data``.

    Raises RemoteProtocolError where the bytes are not a graph, or where the graph is not in topological
    order with every value defined once.
    """
    try:
        graph = msgspec.msgpack.decode(data, type=Graph)
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(f"not an OP-DAG: {error}") from None
    check_graph(graph)
    return graph


def check_graph(graph: Graph) -> None:
    """Raise RemoteProtocolError unless the graph's invariants hold: see :class:`Graph`."""
    _require(bool(graph.operators), "it has no operators")
    _check_values(graph)
    _check_order(graph)
    for update in graph.updates:
        _require(
            update.buffer < len(graph.values) and graph.values[update.buffer].kind == "buffer",
            "it updates something that is not a buffer",
        )
        old, new = graph.values[update.buffer].spec, graph.values[update.value].spec
        _require(
            (old.dtype, old.shape) == (new.dtype, new.shape),
            "it updates a buffer with another kind of tensor",
        )
    loss = graph.values[graph.loss].spec
    _require(loss.elements == 1 and loss.dtype in FLOATING, "its loss is not a number")
    if graph.metric is not None:
        _require(graph.mode == "evaluate", "it has a metric, and is not for evaluation")
        metric = graph.values[graph.metric]
        _require(metric.kind == "output", "no operator makes its metric")
        _require(metric.spec.elements == 1 and metric.spec.dtype in FLOATING, "its metric is not a number")


def _check_values(graph: Graph) -> None:
    order = ["input", "parameter", "buffer", "constant", "output"]
    ranks = [order.index(value.kind) for value in graph.values]
    _require(ranks == sorted(ranks), "its values are not in the order of their kinds")
    names = [value.name for value in graph.values if value.kind in TENSOR_KINDS]
    _require(len(set(names)) == len(names), "it has two tensors of one name")
    for value in graph.values:
        spec = value.spec
        _require(len(spec.shape) == len(spec.strides), f"{value.name} has strides for other dimensions")
        _require(spec.nbytes <= MAX_TENSOR_BYTES, f"{value.name} has more than {MAX_TENSOR_BYTES} bytes")
        _require(not value.differentiable or spec.dtype in FLOATING, f"{value.name} has no gradient to want")


def _check_order(graph: Graph) -> None:
    """Every value is made once, before it is read, and by an allowed operator where it is an output."""
    defined = [value.kind != "output" for value in graph.values]
    for operator in graph.operators:
        _require(
            operator.target in ALLOWED, f"{operator.target} is no operator that peers run for each other"
        )
        for read in operator_inputs(operator):
            _require(read < len(defined) and defined[read], f"{operator.target} reads a value not yet made")
        for made in operator.outputs:
            if made >= 0:
                _require(made < len(defined) and not defined[made], f"{operator.target} makes a value twice")
                defined[made] = True
    _require(all(defined), "it has a value that nothing makes")
    for returned in (*graph.measures, *graph.outputs, *(update.value for update in graph.updates)):
        _require(returned < len(defined), "it returns a value that nothing makes")


def _require(holds: bool, otherwise: str) -> None:
    if not holds:
        raise RemoteProtocolError(f"not an OP-DAG: {otherwise}")
