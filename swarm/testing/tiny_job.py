"""A file for ``swarm train`` with a job that takes a moment."""

from pathlib import Path
from typing import Final

TINY: Final = """
import numpy as np
import torch
from swarm.train import optimizer
from swarm.train.job import TrainingJob

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16), torch.nn.ReLU(),
                            torch.nn.Linear(16, 1))
x = np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32)
y = x.sum(axis=1, keepdims=True)
job = TrainingJob(model=model, loss=torch.nn.functional.mse_loss, dataset=(x, y), held_out=(x[:16], y[:16]),
                  micro_batch_size=4, micro_batches=4, {fields})
"""


def write_tiny_job(folder: Path, fields: str = "optimizer=optimizer.SGD(lr=0.05), steps=12") -> Path:
    """The file ``tiny.py`` in ``folder``; ``fields`` are further arguments of the job, as Python has them."""
    path = folder / "tiny.py"
    path.write_text(TINY.format(fields=fields), "utf-8")
    return path
