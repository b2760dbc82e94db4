"""The two identities that make gradients independent of where a graph is cut.

torch adds the gradients of a value's uses in the order in which its engine meets them, in place or not as it
sees fit. Here the order and the layout are part of the contract (decision D5), so each use of a value is
split off by a :func:`fork`, and the gradients meet nowhere else: the one of this use is added to the sum of
all later uses. Where the later uses are in another stage, that sum is what the stage hands back (RAD).
"""

from typing import Any

import torch

from swarm.compress.layout import portable


def fork(value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``value`` for the use at hand, and for all later ones; with the sum of their gradients, in that order.

    Where one of the two has no gradient, it is the other's.
    """
    here, later = _Fork.apply(value)  # type: ignore[no-untyped-call]
    return here, later


def differentiably_portable(value: torch.Tensor) -> torch.Tensor:
    """``value`` in a layout that travels, with a gradient in a layout that travels.

    Used in every partition alike, so that the kernels behind it never see a layout that a link would change.
    """
    made: torch.Tensor = _Portable.apply(value)  # type: ignore[no-untyped-call]
    return made


class _Fork(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        return value.detach(), value.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> torch.Tensor | None:
        here, later = gradients
        if here is None or later is None:
            return later if here is None else here
        return later + here


class _Portable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return portable(value.detach())

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> torch.Tensor | None:
        (gradient,) = gradients
        return None if gradient is None else portable(gradient)
