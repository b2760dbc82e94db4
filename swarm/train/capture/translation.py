"""An exported program, written as the OP-DAG: plain data with the author's names."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import torch
from torch import fx

from swarm.graph import dag
from swarm.graph.operators import ALLOWED
from swarm.train.capture.arguments import argument, spec_of
from swarm.train.capture.modes import Mode
from swarm.train.capture.places import Refusal, of_node
from swarm.train.capture.signature import Roots

_EVERY_LAYOUT: Final = {"aten.view.default": "aten.reshape.default"}
"""``view`` refuses layouts that the capturing machine did not see: kernels of other devices and torch builds lay
their outputs out differently. ``reshape`` is ``view`` wherever that works, with the same gradient."""

_SAID_ELSEWHERE: Final = frozenset({"layout", "pin_memory"})
"""Arguments with one legal value: strided, and unpinned."""


class Leaf(NamedTuple):
    """A value that no operator makes."""

    kind: Literal["input", "parameter", "buffer", "constant"]
    name: str
    tensor: torch.Tensor


class Translation:
    """Builds the values and operators of one graph, in order."""

    def __init__(self, differentiable: frozenset[fx.Node]) -> None:
        self._differentiable = differentiable
        self._ids: dict[fx.Node, int] = {}
        self._names: dict[str, int] = {}
        self._values: list[dag.Value] = []
        self._operators: list[dag.Operator] = []

    def add_leaf(self, leaf: Leaf, readers: Sequence[fx.Node]) -> None:
        """A model input, parameter, buffer or constant, which the placeholders ``readers`` stand for."""
        self._names[leaf.name] = len(self._values)
        self._ids |= dict.fromkeys(readers, len(self._values))
        needed = any(node in self._differentiable for node in readers)
        self._values.append(
            dag.Value(kind=leaf.kind, name=leaf.name, spec=spec_of(leaf.tensor), differentiable=needed)
        )

    def add_operator(self, node: fx.Node, live: frozenset[fx.Node]) -> None:
        """One call of an operator, whose outputs are those that ``live`` nodes read."""
        place = of_node(node)
        name = str(node.target)
        target = _EVERY_LAYOUT.get(name, name)
        if target not in ALLOWED or not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001  its only name
            raise Refusal(f"the operator {name} is not one that peers run; write it with others", place)
        self._operators.append(
            dag.Operator(
                target=target,
                args=tuple(argument(value, self._ids, node) for value in node.args),
                kwargs=tuple(
                    (key, argument(value, self._ids, node))
                    for key, value in node.kwargs.items()
                    if key not in _SAID_ELSEWHERE
                ),
                outputs=self._outputs(node, live),
                path=place.path,
                source=place.source,
                random=draws(node),
            )
        )

    def _outputs(self, node: fx.Node, live: frozenset[fx.Node]) -> tuple[int, ...]:
        result = node.meta["val"]
        if isinstance(result, torch.Tensor):
            return (self._add_output(node),)
        readers: dict[int, list[fx.Node]] = {}
        for user in node.users:
            if user in live:
                readers.setdefault(_selected(node, user), []).append(user)
        outputs = []
        for index, item in enumerate(result):
            if isinstance(item, torch.Tensor):
                first, *others = readers.get(index, [None])
                outputs.append(-1 if first is None else self._add_output(first))
                for other in others:
                    self._ids[other] = outputs[-1]
        return tuple(outputs)

    def _add_output(self, node: fx.Node) -> int:
        self._ids[node] = len(self._values)
        spec = spec_of(node.meta["val"], of_node(node))
        self._values.append(
            dag.Value(kind="output", name=node.name, spec=spec, differentiable=node in self._differentiable)
        )
        return self._ids[node]

    def finish(self, mode: Mode, roots: Roots) -> dag.Graph:
        """The graph."""
        return dag.Graph(
            format=dag.FORMAT,
            mode=mode,
            values=tuple(self._values),
            operators=tuple(self._operators),
            loss=self._ids[roots.loss],
            outputs=tuple(self._ids[node] for node in roots.outputs),
            updates=tuple(
                dag.Update(buffer=self._names[name], value=self._ids[node]) for name, node in roots.updates
            ),
        )


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
