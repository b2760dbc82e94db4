"""``torch.export`` of a module together with its loss, put in functional form."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from swarm.train.capture.experts import batched_experts
from swarm.train.capture.modes import Mode, set_mode
from swarm.train.capture.places import LOSS_PATH, MODEL_PREFIX, Place, Refusal, of_error
from swarm.train.capture.quiet import quiet
from swarm.train.capture.watch import no_custom_backward, preserved
from swarm.train.capture.wrapper import ModelWithLoss, changed_attribute


def _copied(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``aten.copy``, which has no derivative, as operators that do."""
    del non_blocking
    return source.to(target.dtype).expand(target.shape)


@functools.cache
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
            quiet(tell=mode == "train"),
            torch.random.fork_rng(devices=[]),
            preserved(wrapper),
            batched_experts(wrapper.model),
            no_custom_backward(),
            torch.enable_grad(),
        ):
            set_mode(wrapper.model, mode)
            if isinstance(wrapper.loss, nn.Module):
                set_mode(wrapper.loss, mode)
            program: ExportedProgram = torch.export.export(wrapper, fields, strict=False)
            _keep_places(program.graph_module)
            program = program.run_decompositions(dict(_decompositions()))
    except Refusal as refusal:
        kind = type(refusal)
        raise kind(refusal.sentence, refusal.place or of_error(refusal, wrapper.model)) from None
    except Exception as error:
        place = of_error(error, wrapper.model)
        raise Refusal(_reason(error, place, fields[-1]), place) from error
    _refuse_lost_state(program, wrapper.replaced)
    return program


_DATA_DEPENDENT = (
    "what it computes next depends on the values of a tensor, and every sample must take the same operators; "
    "use torch.where or a mask instead of if, indexing with truth values, .item() or .tolist()"
)


def _reason(error: Exception, place: Place, target: torch.Tensor) -> str:
    """One sentence for what torch, or the author's own code, said."""
    if type(error).__name__ in {
        "GuardOnDataDependentSymNode",
        "DataDependentOutputException",
        "DynamicOutputShapeException",
    }:
        return _DATA_DEPENDENT
    lines = (line.strip().rstrip(".") for line in str(error).splitlines())
    line = next((line for line in lines if line), "no further words")
    if place.path == LOSS_PATH:
        kind = f"{str(target.dtype).removeprefix('torch.')}{list(target.shape)}"
        return (
            f"computing it raised {type(error).__name__}: {line}; its target is {kind}, so check that target "
            "and outputs are what this loss takes"
        )
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
            raise changed_attribute(path, attribute)
