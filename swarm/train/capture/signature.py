"""What an exported program reads and returns, by the author's names."""

from collections.abc import Iterable

import torch
from msgspec import Struct
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, OutputSpec

from swarm.train.capture.places import LOSS_PATH, Place, Refusal, of_node
from swarm.train.capture.state import ModelState, constant_name


class Roots(Struct, frozen=True, kw_only=True):
    """What the program returns: loss, metric, other outputs of the model, and (buffer's name, new value)."""

    loss: fx.Node
    metric: fx.Node | None
    outputs: tuple[fx.Node, ...]
    updates: tuple[tuple[str, fx.Node], ...]

    def nodes(self) -> tuple[fx.Node, ...]:
        """All of them."""
        measures = (self.loss,) if self.metric is None else (self.loss, self.metric)
        return (*measures, *self.outputs, *(node for _, node in self.updates))


class Reads(Struct, frozen=True, kw_only=True):
    """The placeholders of each input, parameter, buffer and constant by name, and the constants' tensors."""

    nodes: dict[str, tuple[fx.Node, ...]]
    constants: dict[str, torch.Tensor]


def input_name(position: int) -> str:
    """The name of the model input that is the samples' field at ``position``."""
    return f"input.{position}"


def live_nodes(roots: Iterable[fx.Node]) -> frozenset[fx.Node]:
    """``roots`` and everything that they are computed from."""
    found: set[fx.Node] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting.extend(node.all_input_nodes)
    return frozenset(found)


def roots_of(program: ExportedProgram, state: ModelState, *, measures: bool = False) -> Roots:
    """The nodes that ``program`` returns; raises Refusal for an effect that is not a buffer's update.

    ``measures``: a metric comes after the loss.
    """
    returned: list[fx.Node] = []
    updates: list[tuple[str, fx.Node]] = []
    nodes = program.graph.output_node().args[0]
    assert isinstance(nodes, tuple | list)  # noqa: S101  what export promises; for the type checker
    for spec, node in zip(program.graph_signature.output_specs, nodes, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            returned.append(node)
        elif spec.kind is OutputKind.BUFFER_MUTATION and isinstance(node, fx.Node):
            updates.append((state.names[spec.target or ""], node))
        else:
            raise _refused_effect(spec, node, state)
    loss = returned[0]
    _check_loss(loss)
    metric = returned[1] if measures else None
    others = tuple(dict.fromkeys(node for node in returned if node not in {loss, metric}))
    return Roots(loss=loss, metric=metric, outputs=others, updates=tuple(updates))


def _refused_effect(spec: OutputSpec, node: object, state: ModelState) -> Refusal:
    place = of_node(node) if isinstance(node, fx.Node) else None
    if spec.kind is OutputKind.USER_INPUT_MUTATION:
        return Refusal("it writes to one of its inputs in place; clone() the input first", place)
    if spec.kind is OutputKind.PARAMETER_MUTATION:
        name = state.names.get(spec.target or "", spec.target)
        return Refusal(f"it writes to its parameter {name} in forward; only the optimizer may", place)
    return Refusal(f"it has an effect that a graph cannot hold ({spec.kind.name.lower()})", place)


def _check_loss(loss: fx.Node) -> None:
    value: torch.Tensor = loss.meta["val"]
    if value.dim() or not value.dtype.is_floating_point:
        kind = str(value.dtype).removeprefix("torch.")
        raise Refusal(
            f"it has shape {tuple(value.shape)} and type {kind}, and must be one floating number; reduce it, "
            "with .mean() for example",
            Place(path=LOSS_PATH),
        )


def reads_of(program: ExportedProgram, state: ModelState, live: frozenset[fx.Node]) -> Reads:
    """Who reads what among the ``live`` nodes of ``program``."""
    placeholders = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    nodes: dict[str, list[fx.Node]] = {}
    constants: dict[str, torch.Tensor] = {}
    inputs = 0
    for spec in program.graph_signature.input_specs:
        node = placeholders[spec.arg.name]
        if spec.kind is InputKind.USER_INPUT:
            name = input_name(inputs)
            inputs += 1
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            tensor = program.constants[spec.target or ""]
            name = constant_name(tensor)
            if node in live:
                constants[name] = tensor
        elif spec.kind in {InputKind.PARAMETER, InputKind.BUFFER}:
            name = state.names[spec.target or ""]
        else:
            raise Refusal(f"it uses {spec.target}, which is not a tensor")
        if node in live:
            nodes.setdefault(name, []).append(node)
    return Reads(nodes={name: tuple(found) for name, found in nodes.items()}, constants=constants)
