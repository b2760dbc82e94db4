"""A job whose state is large beside what a step sends: layers as wide as what goes from one to the next."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import torch

from swarm.train.job import TrainingJob
from swarm.train.optimizer import AdamW

MICRO_BATCHES: Final = 4


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How large it is."""

    width: int
    layers: int
    batch: int
    """Samples of a micro-batch."""

    @property
    def state_bytes(self) -> int:
        """Of parameters and both of Adam's averages."""
        return 3 * 4 * self.layers * self.width * (self.width + 1)

    @property
    def boundary_bytes(self) -> int:
        """That cross a boundary in a step, one way."""
        return 4 * MICRO_BATCHES * self.batch * self.width


def wide_job(shape: Shape, *, export_to: Sequence[str] = ()) -> TrainingJob:
    """A job that does not end by itself, on data of no meaning; the same each time."""
    torch.manual_seed(0)
    layers = [
        part
        for _ in range(shape.layers)
        for part in (torch.nn.Linear(shape.width, shape.width), torch.nn.Tanh())
    ]
    samples = MICRO_BATCHES * shape.batch
    x = np.random.default_rng(0).normal(size=(samples, shape.width)).astype(np.float32)
    return TrainingJob(
        name="wide",
        model=torch.nn.Sequential(*layers),
        loss=torch.nn.functional.mse_loss,
        dataset=(x, x),
        optimizer=AdamW(lr=1e-4),
        micro_batch_size=shape.batch,
        micro_batches=MICRO_BATCHES,
        steps=1_000_000,
        export_to=export_to,
    )
