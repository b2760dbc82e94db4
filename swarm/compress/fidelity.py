"""How near a tensor arrives to what was sent (decision D8, truth about quality)."""

from dataclasses import dataclass

import torch

from swarm.compress.layout import in_float64


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """Of one tensor that a codec took apart and rebuilt."""

    relative_error: float
    """Norm of the difference by the norm of the tensor; 0 where nothing was lost."""
    cosine: float
    """Of the angle between both; 1 where they point the same way."""


def fidelity_of(sent: torch.Tensor, rebuilt: torch.Tensor) -> Fidelity:
    """Compare in float64. A tensor of zeros that arrives as such lost nothing."""
    before, after = in_float64(sent.detach()).ravel(), in_float64(rebuilt).ravel()
    norm, lost = float(before.norm()), float((after - before).norm())
    if not lost:
        return Fidelity(relative_error=0.0, cosine=1.0)
    both = norm * float(after.norm())
    return Fidelity(
        relative_error=lost / norm if norm else float("inf"),
        cosine=float(before @ after) / both if both else 0.0,
    )
