"""The one entry: a module, example inputs and a loss in, the OP-DAG and its tensors out."""

import contextlib
import operator
from collections.abc import Mapping, Sequence, ValuesView
from typing import Final

import torch
from msgspec import Struct
from torch import fx, nn
from torch.export import ExportedProgram

from swarm.errors import CaptureError, MisuseError
from swarm.graph.dag import Graph
from swarm.train.capture.calling import Loss, Metric, misfit
from swarm.train.capture.gradients import differentiable
from swarm.train.capture.modes import Mode
from swarm.train.capture.places import HiddenDraw, Place, Refusal
from swarm.train.capture.signature import input_name, live_nodes, reads_of, roots_of
from swarm.train.capture.state import ModelState, model_state
from swarm.train.capture.tracing import trace
from swarm.train.capture.translation import Leaf, Translation
from swarm.train.capture.wrapper import ModelWithLoss

TRACES: Final = 3
"""Traces that all have to see hidden draws before the module is blamed for them."""


class Captured(Struct, frozen=True, kw_only=True):
    """A model as an OP-DAG, with the tensors it starts from.

    ``tensors`` holds every parameter, buffer and constant under its name in the graph. They share memory with
    the author's module: copy before writing. Every parameter and buffer of the module is a value of the
    graph, used or not, so graphs of both modes have the same names. ``state_dict`` maps the keys of the
    module's own ``state_dict()``, in order, to those names: tied parameters are several keys of one name, and
    buffers that are not persistent have no key.
    """

    graph: Graph
    tensors: Mapping[str, torch.Tensor]
    state_dict: Mapping[str, str]


def capture(
    module: nn.Module,
    example_inputs: Sequence[torch.Tensor] | Mapping[str, torch.Tensor],
    *,
    loss: Loss | None = None,
    mode: Mode = "train",
    metric: Metric | None = None,
) -> Captured:
    """Capture ``module`` and ``loss`` as one graph with the static shapes of ``example_inputs``.

    ``example_inputs`` are one micro-batch: the model's inputs and, last, the target; a mapping has them by
    the names that ``forward`` gives them. ``loss`` is called with (outputs, target) and returns a scalar;
    without it the module returns the loss itself: alone, as the first of a tuple, or under ``loss`` in a
    mapping. ``metric`` is called as the loss is, and returns a number to measure in evaluation. The module is
    left exactly as it was.

    Raises CaptureError, one line with module path, source line and a way out, where the model cannot become a
    graph, and MisuseError for arguments of the wrong kind. Source: decision D4.
    """
    names = tuple(example_inputs) if isinstance(example_inputs, Mapping) else None
    given = example_inputs.values() if isinstance(example_inputs, Mapping) else example_inputs
    _check_arguments(module, given, loss)
    _check_fields(module, len(given), names, loss)
    wrapper = ModelWithLoss(module, loss, names, metric)
    try:
        state = model_state(wrapper)
        device = next((tensor.device for tensor in wrapper.parameters()), torch.device("cpu"))
        fields = tuple(field.detach().to(device) for field in given)
        program = _traced(wrapper, fields, mode)
        return _translated(program, state, fields, mode, measures=metric is not None)
    except Refusal as refusal:
        raise CaptureError(f"{refusal.place or Place()}: {refusal.sentence}") from refusal.__cause__


def _traced(wrapper: ModelWithLoss, fields: tuple[torch.Tensor, ...], mode: Mode) -> ExportedProgram:
    """The program. On other threads libraries of the network draw now and then; a module always does."""
    for _ in range(TRACES - 1):
        with contextlib.suppress(HiddenDraw):
            return trace(wrapper, fields, mode)
    return trace(wrapper, fields, mode)


def _check_arguments(module: object, given: object, loss: object) -> None:
    if not isinstance(module, nn.Module):
        raise MisuseError(f"the model is of type {type(module).__name__}, and must be an nn.Module")
    if loss is not None and not callable(loss):
        raise MisuseError(
            f"the loss is of type {type(loss).__name__}, and must be a function of (outputs, target)"
        )
    if not isinstance(given, tuple | list | ValuesView) or not all(
        isinstance(field, torch.Tensor) for field in given
    ):
        raise MisuseError("example inputs are a tuple of tensors, one for each field of a sample")
    if len(given) < (1 if loss is None else 2):
        raise MisuseError("example inputs need at least one input, and the target last where a loss is given")


def _check_fields(module: nn.Module, count: int, names: Sequence[str] | None, loss: Loss | None) -> None:
    taken = count if loss is None else count - 1
    why = misfit(module, taken, None if names is None else names[:taken])
    if why:
        beside = "" if loss is None else " beside the target"
        raise MisuseError(f"samples have {taken} field{'s'[: taken != 1]}{beside}, and {why}")


def _translated(
    program: ExportedProgram,
    state: ModelState,
    fields: Sequence[torch.Tensor],
    mode: Mode,
    *,
    measures: bool,
) -> Captured:
    roots = roots_of(program, state, measures=measures)
    live = live_nodes(roots.nodes())
    reads = reads_of(program, state, live)
    translation = Translation()
    leaves: list[Leaf] = [
        *(Leaf("input", input_name(position), field) for position, field in enumerate(fields)),
        *(Leaf("parameter", name, tensor) for name, tensor in state.parameters.items()),
        *(Leaf("buffer", name, tensor) for name, tensor in state.buffers.items()),
        *(Leaf("constant", name, tensor) for name, tensor in reads.constants.items()),
    ]
    for leaf in leaves:
        translation.add_leaf(leaf, reads.nodes.get(leaf.name, ()))
    for node in program.graph.nodes:
        if node in live and node.op == "call_function" and node.target is not operator.getitem:
            translation.add_operator(node, live)
    needed: frozenset[fx.Node] = frozenset()
    if mode == "train":
        trained = [node for name in state.trained() for node in reads.nodes.get(name, ())]
        needed = differentiable(program.graph, live, roots.loss, trained)
    return Captured(
        graph=translation.finish(mode, roots, needed),
        tensors={leaf.name: leaf.tensor.detach() for leaf in leaves if leaf.kind != "input"},
        state_dict=state.state_dict,
    )
