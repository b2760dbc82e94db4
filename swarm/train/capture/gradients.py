"""Which values need a gradient: asked of autograd itself, on tensors without data.

The traced graph runs once on fake tensors, forward and backward. A value is differentiable exactly where the
gradient of the loss with respect to it exists, and an operator without a derivative is found at capture, not
in the first backward pass of a peer.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import map_arg

from swarm.train.capture.places import Refusal, of_node
from swarm.train.capture.rewriting import for_any_layout

_NO_DERIVATIVE: Final = re.compile(r"derivative for aten::(?P<name>\w+) is not implemented")


def differentiable(
    graph: fx.Graph, live: Collection[fx.Node], loss: fx.Node, trained: Collection[fx.Node]
) -> frozenset[fx.Node]:
    """The ``live`` nodes whose gradient is needed to train the parameters at the nodes ``trained``.

    Raises Refusal where no trained parameter reaches the loss or an operator has no derivative.
    """
    if not trained:
        raise Refusal("none of its parameters is trained; set requires_grad on those that should be")
    results: dict[fx.Node, Any] = {}
    with FakeTensorMode(shape_env=ShapeEnv()), torch.enable_grad():
        for node in graph.nodes:
            if node not in live:
                continue
            if node.op == "placeholder":
                results[node] = _leaf(node.meta["val"], trained=node in trained)
            else:
                results[node] = _result(node, results)
        if not results[loss].requires_grad:
            raise Refusal(
                "its loss does not depend on any trained parameter; is it computed without gradients?"
            )
        wanted = [node for node, result in results.items() if _has_gradient(result)]
        gradients = _gradients(graph, results[loss], [results[node] for node in wanted])
    return frozenset(node for node, gradient in zip(wanted, gradients, strict=True) if gradient is not None)


def _has_gradient(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and result.requires_grad


def _gradients(
    graph: fx.Graph, loss: torch.Tensor, wanted: Sequence[torch.Tensor]
) -> tuple[torch.Tensor | None, ...]:
    try:
        return torch.autograd.grad(loss, wanted, allow_unused=True)
    except (RuntimeError, NotImplementedError) as error:
        named = _NO_DERIVATIVE.search(str(error))
        if named is None:
            raise Refusal(f"its loss cannot be differentiated: {str(error).splitlines()[0]}") from error
        name = f"aten.{named['name']}"
        nodes = (node for node in graph.nodes if str(node.target).startswith(f"{name}."))
        place = next((of_node(node) for node in nodes), None)
        raise Refusal(
            f"the operator {name} has no derivative; detach() its input or use another", place
        ) from error


def _leaf(fake: torch.Tensor, *, trained: bool) -> torch.Tensor:
    leaf = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
    return leaf.requires_grad_(trained)


def _result(node: fx.Node, results: dict[fx.Node, Any]) -> Any:
    args = map_arg(node.args, results.__getitem__)
    kwargs = map_arg(node.kwargs, results.__getitem__)
    try:
        return for_any_layout(node.target)(*args, **kwargs)
    except Exception as error:
        said = str(error).splitlines()[0]
        raise Refusal(
            f"{node.target} cannot be differentiated without data: {said}", of_node(node)
        ) from error
