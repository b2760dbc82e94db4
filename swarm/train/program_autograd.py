"""What makes gradients independent of where a graph is cut.

torch adds the gradients of a value's uses in the order in which its engine meets them, and that is from the
last use to the first: of the nodes that are ready, it runs the one that was made last ("Sequence Number" in
torch's ``csrc/autograd/function.h``). Where the later uses are in another stage, the sum of their gradients
is what that stage hands back, and it is there before any other (RAD). So the order, which is part of the
contract (decision D5), is that of one process, as long as no two values are one tensor to the engine.
"""

from typing import Any

import torch

from swarm.compress.layout import portable


def apart(value: torch.Tensor) -> torch.Tensor:
    """``value`` as a tensor of its own to the engine, in the same memory.

    For what an operator returned as it was given it: the gradients of both would be one sum.
    """
    own: torch.Tensor = torch.ops.aten.alias.default(value)
    return own


def with_portable_gradient(value: torch.Tensor) -> torch.Tensor:
    """``value``, which has a layout that travels, with a gradient of this one use that has one, too."""
    use = apart(value)
    use.register_hook(portable)  # type: ignore[no-untyped-call]
    return use


def differentiably_portable(value: torch.Tensor) -> torch.Tensor:
    """``value`` in a layout that travels, with a gradient in a layout that travels.

    Used in every partition alike, so that the kernels behind it never see a layout that a link would change.
    """
    made: torch.Tensor = _Portable.apply(value)  # type: ignore[no-untyped-call]
    return made


class _Portable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return portable(value.detach())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> torch.Tensor | None:
        (gradient,) = gradients
        return None if gradient is None else portable(gradient)
