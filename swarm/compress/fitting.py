"""How long codecs take here: what a codec model needs beside sizes (decision D8)."""

from collections.abc import Iterable
from typing import Final

import torch

from swarm.clock import elapsed
from swarm.compress.codec import Place, Request
from swarm.compress.ladder import put_together, read, take_apart
from swarm.wire.codecs import CodecSpec

_SHAPE: Final = (512, 256)
"""Of the tensor that is coded: large enough to be a boundary tensor, small enough to be done at once."""
_ROUNDS: Final = 3


def coding_seconds(codecs: Iterable[CodecSpec], device: torch.device) -> dict[CodecSpec, float]:
    """Seconds an element that each codec takes to encode and decode noise, the best of a few rounds.

    Takes some hundredths of a second on a CPU. To be called on the device thread.
    """
    noise = torch.randn(_SHAPE, generator=torch.Generator().manual_seed(0)).to(device)
    return {codec: _seconds(noise, codec) / noise.numel() for codec in codecs}


def _seconds(noise: torch.Tensor, codec: CodecSpec) -> float:
    best = float("inf")
    for seed in range(_ROUNDS):
        began = elapsed()
        encoded = take_apart(noise, codec, Request(seed=seed, gradient=False)).encode()
        put_together(read(encoded), Place(device=noise.device))
        best = min(best, elapsed() - began)
    return best
