"""What a model of the zoo is: the module, its loss, and micro-batches for it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from swarm.train.capture import Loss

Fields = dict[str, torch.Tensor]
"""One micro-batch: the fields of its samples by name, the target last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooModel:
    """A model that people train, at a small width and with its full structure."""

    make: Callable[[], nn.Module]
    """Draws its weights from torch's generator."""
    loss: Loss | None
    """None: the module computes it, and takes the fields by their names."""
    sample: Callable[[torch.Generator], Fields]
    """Another micro-batch each time."""
