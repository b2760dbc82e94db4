"""Which values need a gradient: asked of autograd itself, on tensors without data.

The traced graph runs once on fake tensors, forward and backward. A value is differentiable exactly where the
gradient of the loss with respect to it exists, and an operator without a derivative is found at capture, not
in the first backward pass of a peer.
"""

import contextlib
import operator
from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode

from swarm.train.capture.places import Refusal, of_node


def differentiable(graph: fx.Graph, loss: fx.Node, trained: Collection[fx.Node]) -> frozenset[fx.Node]:
    """The nodes whose gradient is needed to train the parameters at the nodes ``trained``.

    Raises Refusal where no trained parameter reaches the loss or an operator has no derivative.
    """
    if not trained:
        raise Refusal("none of its parameters is trained; set requires_grad on those that should be")
    results: dict[fx.Node, Any] = {}
    with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad():
        for node in graph.nodes:
            if node.op == "placeholder":
                results[node] = _leaf(node.meta["val"], trained=node in trained)
            elif node.op == "call_function":
                with _blamed(node):
                    results[node] = _result(node, results)
        root = results[loss]
        if not root.requires_grad:
            raise Refusal(
                "its loss does not depend on any trained parameter; is it computed without gradients?"
            )
        wanted = [n for n, r in results.items() if isinstance(r, torch.Tensor) and r.requires_grad]
        try:
            gradients = torch.autograd.grad(root, [results[node] for node in wanted], allow_unused=True)
        except (RuntimeError, NotImplementedError) as error:
            raise Refusal(f"its loss cannot be differentiated: {str(error).splitlines()[0]}") from error
    return frozenset(node for node, gradient in zip(wanted, gradients, strict=True) if gradient is not None)


def _leaf(fake: torch.Tensor, *, trained: bool) -> torch.Tensor:
    leaf = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)
    return leaf.requires_grad_(trained)


def _result(node: fx.Node, results: dict[fx.Node, Any]) -> Any:
    args = fx.map_arg(node.args, results.__getitem__)
    kwargs = fx.map_arg(node.kwargs, results.__getitem__)
    assert callable(node.target)  # noqa: S101  true of every call_function; for the type checker
    return node.target(*args, **kwargs)


@contextlib.contextmanager
def _blamed(node: fx.Node) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        name = "selection" if node.target is operator.getitem else str(node.target)
        raise Refusal(f"{name} failed without data: {str(error).splitlines()[0]}", of_node(node)) from error
