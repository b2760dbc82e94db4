"""``torch.export`` of a module together with its loss, put in functional form."""

import contextlib
import io
import logging
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from swarm.train.capture.modes import Mode, set_mode
from swarm.train.capture.places import MODEL_PREFIX, Place, Refusal, of_error, of_node
from swarm.train.capture.watch import Watch, no_custom_backward, plain_tensors, preserved

Loss = Callable[[Any, Any], torch.Tensor]

_GRAD_MODE = torch.ops.higher_order.wrap_with_set_grad_enabled


class ModelWithLoss(nn.Module):
    """What is traced: all fields of a micro-batch in, the loss and the model's outputs out.

    With a ``loss`` the last field is the target; without one, the model returns the loss itself, alone, as the
    first of a tuple, or under ``loss`` in a mapping.
    """

    def __init__(self, model: nn.Module, loss: Loss | None) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.replaced: set[str] = set()

    def forward(self, *fields: torch.Tensor) -> tuple[Any, Any]:
        """The loss and the outputs; buffers that the model replaced are written back in place."""
        buffers = [
            (part, name, buffer)
            for part in self.model.modules()
            for name, buffer in part.named_buffers(recurse=False)
        ]
        plain = [
            (path, part, name, tensor, tensor._version)  # noqa: SLF001  counts writes; has no public name
            for path, part in self.model.named_modules()
            for name, tensor in plain_tensors(part)
        ]
        with Watch():
            loss, outputs = self._evaluated(fields)
            for part, name, buffer in buffers:
                _write_back(part, name, buffer)
        for path, part, name, tensor, version in plain:
            if tensor._version != version:  # noqa: SLF001
                raise _changed_attribute(path, name)
            if getattr(part, name, None) is not tensor:
                self.replaced.add(f"{path}.{name}" if path else name)
        return loss, outputs

    def _evaluated(self, fields: Sequence[torch.Tensor]) -> tuple[Any, Any]:
        if self.loss is not None:
            outputs = self.model(*fields[:-1])
            return self.loss(outputs, fields[-1]), outputs
        result = self.model(*fields)
        if isinstance(result, torch.Tensor):
            return result, ()
        if isinstance(result, Mapping):
            return result.get("loss"), result
        return (result[0], result[1:]) if isinstance(result, tuple | list) and result else (None, ())


def _write_back(part: nn.Module, name: str, buffer: torch.Tensor) -> None:
    """Make the replacement of a buffer by assignment the same as a write to it."""
    current = getattr(part, name, None)
    if current is buffer:
        return
    if (
        not isinstance(current, torch.Tensor)
        or current.shape != buffer.shape
        or current.dtype != buffer.dtype
    ):
        raise Refusal(f"its buffer {name} is replaced by something of another shape or type; keep both fixed")
    buffer.copy_(current.detach())
    setattr(part, name, buffer)


def _changed_attribute(path: str, name: str) -> Refusal:
    return Refusal(
        f"the tensor {name} is kept in a plain attribute and changed by forward, so its state would be lost; "
        f'keep it with register_buffer("{name}", ...)',
        Place(path=path),
    )


def trace(wrapper: ModelWithLoss, fields: tuple[torch.Tensor, ...], mode: Mode) -> ExportedProgram:
    """The exported program of a model with its loss, in ``mode``, in functional form, with static shapes.

    Raises Refusal where that cannot be.
    """
    try:
        with _quiet(), preserved(wrapper), no_custom_backward(), torch.enable_grad():
            set_mode(wrapper.model, mode)
            if isinstance(wrapper.loss, nn.Module):
                set_mode(wrapper.loss, mode)
            program = torch.export.export(wrapper, fields, strict=False)
            _inline_grad_modes(program.graph_module)
            program = program.run_decompositions({})
    except Refusal as refusal:
        raise Refusal(refusal.sentence, refusal.place or of_error(refusal, wrapper.model)) from None
    except Exception as error:
        raise Refusal(_reason(error), of_error(error, wrapper.model)) from error
    _refuse_lost_state(program, wrapper.replaced)
    return program


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch prints and warns while it traces away from the user, who gets one line from us."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


_DATA_DEPENDENT = (
    "what it computes next depends on the values of a tensor, and every sample must take the same operators; "
    "use torch.where or a mask instead of if, indexing with truth values, .item() or .tolist()"
)


def _reason(error: Exception) -> str:
    """One sentence for what torch, or the author's own code, said."""
    if type(error).__name__ in {
        "GuardOnDataDependentSymNode",
        "DataDependentOutputException",
        "DynamicOutputShapeException",
    }:
        return _DATA_DEPENDENT
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "no further words")
    return f"tracing it raised {type(error).__name__}: {line}; the model must run on its example inputs"


def _inline_grad_modes(module: fx.GraphModule) -> None:
    """Replace each sub-graph that runs without gradients by its operators with detached results.

    Export keeps such a region as a sub-graph, and its own decompositions would inline it with gradients.
    """
    graph = module.graph
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is _GRAD_MODE:
            _inline(graph, node, module)
    graph.eliminate_dead_code()
    module.delete_all_unused_submodules()
    module.recompile()


def _inline(graph: fx.Graph, node: fx.Node, module: fx.GraphModule) -> None:
    enabled, body_name, *operands = node.args
    body = getattr(module, body_name.target)
    if any(inner.target is _GRAD_MODE for inner in body.graph.nodes):
        raise Refusal("gradients are switched on inside a block that switches them off", of_node(node))
    places = [inner for inner in body.graph.nodes if inner.op == "placeholder"]
    known: dict[fx.Node, Any] = dict(zip(places, operands, strict=True))
    results: Any = ()
    with graph.inserting_before(node):
        for inner in body.graph.nodes:
            if inner.op == "output":
                results = fx.map_arg(inner.args[0], known.__getitem__)
            elif inner.op != "placeholder":
                known[inner] = graph.node_copy(inner, known.__getitem__)
    stop = torch.ops.aten.alias.default if enabled else torch.ops.aten.detach.default
    for selection in list(node.users):
        if selection.target is not operator.getitem:
            raise Refusal("a block without gradients returns something else than tensors", of_node(node))
        selection.args = (results[selection.args[1]],)
        selection.target = stop
    graph.erase_node(node)


def _refuse_lost_state(program: ExportedProgram, replaced: set[str]) -> None:
    """Refuse a plain tensor attribute that forward both reads and replaces: state outside the buffers."""
    used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    for spec in program.graph_signature.input_specs:
        name = (spec.target or "").removeprefix(MODEL_PREFIX)
        if spec.kind is InputKind.CONSTANT_TENSOR and name in replaced and spec.arg.name in used:
            path, _, attribute = name.rpartition(".")
            raise _changed_attribute(path, attribute)
