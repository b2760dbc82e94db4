"""How fast a device computes, for the planner's first guess; later work measures per operator kind (D6)."""

from typing import Final

import torch

from swarm.clock import elapsed

SIZE: Final = 384
"""Rows of the square matrices: large enough to fill one core's units, small enough for many rounds."""
ROUNDS: Final = 12


def measure_flops(device: torch.device) -> float:
    """Floating-point operations a second in float32 matrix products, the best of several rounds.

    The best round, because others may use the machine at the moment; a device that is shared all night shows
    it in its steps. Runs on the device thread, for about a tenth of a second on a CPU.
    """
    size = SIZE if device.type == "cpu" else 8 * SIZE
    left, right = torch.ones(size, size, device=device), torch.ones(size, size, device=device)
    best = float("inf")
    for _ in range(ROUNDS):
        began = elapsed()
        product = left @ right
        product[0, 0].item()
        best = min(best, elapsed() - began)
    return 2 * size**3 / best
