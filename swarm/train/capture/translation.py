"""An exported program, written as the OP-DAG: plain data with the author's names."""

import operator
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import fx

from swarm.graph import dag
from swarm.graph.operators import ALLOWED
from swarm.train.capture.arguments import VALUE_DEPENDENT_SHAPE, VALUE_READ, argument, spec_of
from swarm.train.capture.modes import Mode
from swarm.train.capture.places import Refusal, of_node
from swarm.train.capture.rewriting import rewritten
from swarm.train.capture.signature import Roots
from swarm.wire.text import printable

Kind = Literal["input", "parameter", "buffer", "constant", "output"]


class Leaf(NamedTuple):
    """A value that no operator makes."""

    kind: Kind
    name: str
    tensor: torch.Tensor


class _Row(NamedTuple):
    """A value to be, with the nodes that stand for it."""

    kind: Kind
    name: str
    spec: dag.TensorSpec
    nodes: list[fx.Node]


class Translation:
    """Builds the values and operators of one graph, in order."""

    def __init__(self) -> None:
        self._ids: dict[fx.Node, int] = {}
        self._names: dict[str, int] = {}
        self._rows: list[_Row] = []
        self._operators: list[dag.Operator] = []

    def add_leaf(self, leaf: Leaf, readers: Sequence[fx.Node]) -> None:
        """A model input, parameter, buffer or constant, which the placeholders ``readers`` stand for."""
        self._names[leaf.name] = self._add(leaf.kind, leaf.name, spec_of(leaf.tensor), readers)

    def add_operator(self, node: fx.Node, live: Collection[fx.Node]) -> None:
        """One call of an operator, whose outputs are those that ``live`` nodes read."""
        place = of_node(node)
        target, args, kwargs = rewritten(node)
        if target not in ALLOWED:
            raise Refusal(_why_not(node, target), place)
        self._operators.append(
            dag.Operator(
                target=target,
                args=tuple(argument(value, self._ids, node) for value in args),
                kwargs=tuple((key, argument(value, self._ids, node)) for key, value in kwargs.items()),
                outputs=self._outputs(node, live),
                path=printable(place.path),
                source=printable(place.source),
                random=draws(node),
            )
        )

    def _outputs(self, node: fx.Node, live: Collection[fx.Node]) -> tuple[int, ...]:
        result = node.meta["val"]
        if isinstance(result, torch.Tensor):
            return (self._add_output([node]),)
        readers: dict[int, list[fx.Node]] = {}
        for user in node.users:
            if user in live:
                readers.setdefault(_selected(node, user), []).append(user)
        return tuple(
            self._add_output(readers[index]) if index in readers else -1
            for index, item in enumerate(result)
            if isinstance(item, torch.Tensor)
        )

    def _add_output(self, nodes: Sequence[fx.Node]) -> int:
        spec = spec_of(nodes[0].meta["val"], of_node(nodes[0]))
        return self._add("output", nodes[0].name, spec, nodes)

    def _add(self, kind: Kind, name: str, spec: dag.TensorSpec, nodes: Sequence[fx.Node]) -> int:
        self._rows.append(_Row(kind, name, spec, list(nodes)))
        self._ids |= dict.fromkeys(nodes, len(self._rows) - 1)
        return len(self._rows) - 1

    def finish(self, mode: Mode, roots: Roots, differentiable: Collection[fx.Node]) -> dag.Graph:
        """The graph; a value is differentiable where one of its nodes is."""
        return dag.Graph(
            format=dag.FORMAT,
            mode=mode,
            values=tuple(
                dag.Value(
                    kind=row.kind,
                    name=row.name,
                    spec=row.spec,
                    differentiable=any(node in differentiable for node in row.nodes),
                )
                for row in self._rows
            ),
            operators=tuple(self._operators),
            loss=self._ids[roots.loss],
            metric=None if roots.metric is None else self._ids[roots.metric],
            outputs=tuple(self._ids[node] for node in roots.outputs),
            updates=tuple(
                dag.Update(buffer=self._names[name], value=self._ids[node]) for name, node in roots.updates
            ),
        )


def _why_not(node: fx.Node, target: str) -> str:
    tags = getattr(node.target, "tags", ())
    if torch.Tag.dynamic_output_shape in tags:
        return VALUE_DEPENDENT_SHAPE
    if torch.Tag.data_dependent_output in tags:
        return VALUE_READ
    return f"the operator {target} is not one that peers run for each other; write it with others"


def _selected(node: fx.Node, user: fx.Node) -> int:
    if user.target is operator.getitem and isinstance(user.args[1], int):
        return user.args[1]
    raise Refusal(f"{user.target} reads all outputs of {node.target} at once", of_node(user))


def draws(node: fx.Node) -> bool:
    """Whether the operator at ``node`` draws random numbers, with the arguments it has."""
    target = node.target
    if torch.Tag.nondeterministic_seeded not in target.tags:  # type: ignore[union-attr]
        return False
    given = _named_arguments(node)
    chance = given.get("dropout_p", given.get("dropout", given.get("p", 1.0)))
    return chance != 0.0 and given.get("train", given.get("training", True)) is not False


def _named_arguments(node: fx.Node) -> Mapping[str, Any]:
    schema = node.target._schema  # type: ignore[union-attr]  # noqa: SLF001  its only name
    named = {
        parameter.name: parameter.default_value
        for parameter in schema.arguments
        if parameter.has_default_value()
    }
    named |= {parameter.name: value for parameter, value in zip(schema.arguments, node.args, strict=False)}
    return named | dict(node.kwargs)
