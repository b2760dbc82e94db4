"""``torch.export`` of a module together with its loss, put in functional form."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from swarm.train.capture.modes import Mode, set_mode
from swarm.train.capture.places import LOSS_PATH, MODEL_PREFIX, Place, Refusal, of_error
from swarm.train.capture.quiet import quiet
from swarm.train.capture.watch import Watch, no_custom_backward, plain_tensors, preserved

Loss = Callable[[Any, Any], torch.Tensor]


class ModelWithLoss(nn.Module):
    """What is traced: all fields of a micro-batch in, the loss and the model's outputs out.

    With a ``loss`` the last field is the target; without one, the model returns the loss itself: alone, as
    the first of a tuple, or under ``loss`` in a mapping.
    """

    def __init__(self, model: nn.Module, loss: Loss | None) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.replaced: set[str] = set()

    def forward(self, *fields: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The loss and the output tensors; buffers that the model replaced are written back in place."""
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
        if not isinstance(loss, torch.Tensor):
            raise Refusal(
                "it is not a tensor; return the loss first, or give a loss function", Place(path=LOSS_PATH)
            )
        return loss, [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]

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
    buffer.copy_(current)
    setattr(part, name, buffer)


def _changed_attribute(path: str, name: str) -> Refusal:
    return Refusal(
        f"the tensor {name} is kept in a plain attribute and changed by forward, so its state would be lost; "
        f'keep it with register_buffer("{name}", ...)',
        Place(path=path),
    )


def _copied(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``aten.copy``, which has no derivative, as operators that do."""
    del non_blocking
    return source.to(target.dtype).expand(target.shape)


def _decompositions() -> dict[Any, Callable[..., Any]]:
    """For operators that export would keep, though one has no derivative and one hides writes to buffers."""
    hidden_writes = torch.ops.aten.instance_norm.default
    return {
        torch.ops.aten.copy.default: _copied,
        hidden_writes: torch.export.default_decompositions()[hidden_writes],
    }


def trace(wrapper: ModelWithLoss, fields: tuple[torch.Tensor, ...], mode: Mode) -> ExportedProgram:
    """The exported program of a model with its loss, in ``mode``, in functional form, with static shapes.

    Raises Refusal where that cannot be.
    """
    try:
        with (
            quiet(),
            torch.random.fork_rng(devices=[]),
            preserved(wrapper),
            no_custom_backward(),
            torch.enable_grad(),
        ):
            set_mode(wrapper.model, mode)
            if isinstance(wrapper.loss, nn.Module):
                set_mode(wrapper.loss, mode)
            program: ExportedProgram = torch.export.export(wrapper, fields, strict=False)
            _keep_places(program.graph_module)
            program = program.run_decompositions(_decompositions())
    except Refusal as refusal:
        raise Refusal(refusal.sentence, refusal.place or of_error(refusal, wrapper.model)) from None
    except Exception as error:
        raise Refusal(_reason(error), of_error(error, wrapper.model)) from error
    _refuse_lost_state(program, wrapper.replaced)
    return program


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
    lines = (line.strip().rstrip(".") for line in str(error).splitlines())
    line = next((line for line in lines if line), "no further words")
    return (
        f"tracing it raised {type(error).__name__}: {line}; run the model on its example inputs in PyTorch, "
        "and where that works, write this line in another way"
    )


def _keep_places(module: fx.GraphModule) -> None:
    """Let the operators of sub-graphs keep their places through the decompositions.

    Export keeps a region under autocast or without gradients as a sub-graph, and inlines it later by calling
    it; an interpreter passes on what is written on each node, compiled code does not.
    """
    for part in module.modules():
        if isinstance(part, fx.GraphModule) and part is not module:
            setattr(part, "forward", fx.Interpreter(part).run)  # noqa: B010  a method for the type checker


def _refuse_lost_state(program: ExportedProgram, replaced: set[str]) -> None:
    """Refuse a plain tensor attribute that forward both reads and replaces: state outside the buffers."""
    used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    for spec in program.graph_signature.input_specs:
        name = (spec.target or "").removeprefix(MODEL_PREFIX)
        if spec.kind is InputKind.CONSTANT_TENSOR and name in replaced and spec.arg.name in used:
            path, _, attribute = name.rpartition(".")
            raise _changed_attribute(path, attribute)
