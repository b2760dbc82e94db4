"""Real boundary tensors: an activation and its gradient, from the middle of models that have learned."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import nn

from swarm.train.job import TrainingJob, load_job
from swarm.train.samples import first_samples

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
MIDDLES: Final = {"gpt": "blocks.layers.1", "resnet": "2"}
"""By example, the module after which its model is cut."""

WARM_UP_STEPS: Final = 30
"""Steps of plain training first: at its start, a model's activations say little about it."""

SAMPLES: Final = 512
"""Samples in the batch that the tensors are of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryPair:
    """What crosses a boundary in the middle of a model."""

    model: str
    activation: torch.Tensor
    gradient: torch.Tensor


def boundary_pairs() -> list[BoundaryPair]:
    """One of the GPT and one of the ResNet of ``examples``."""
    return [
        _pair(job, job.model.get_submodule(middle))
        for job, middle in ((load_job(EXAMPLES / f"{name}.py"), middle) for name, middle in MIDDLES.items())
    ]


def _pair(job: TrainingJob, middle: nn.Module) -> BoundaryPair:
    fields = [torch.from_numpy(field) for field in first_samples(job.dataset, SAMPLES)]
    optimizer = torch.optim.Adam(job.model.parameters(), lr=2e-3)
    chance = torch.Generator().manual_seed(0)
    for _ in range(WARM_UP_STEPS):
        optimizer.zero_grad()
        torch.autograd.backward(_loss(job, fields, torch.randint(len(fields[0]), (64,), generator=chance)))
        optimizer.step()
    caught: list[torch.Tensor] = []

    def keep(_: nn.Module, __: object, output: torch.Tensor) -> None:
        output.retain_grad()
        caught.append(output)

    handle = middle.register_forward_hook(keep)
    torch.autograd.backward(_loss(job, fields, torch.arange(SAMPLES)))
    handle.remove()
    gradient = caught[0].grad
    if gradient is None:
        raise RuntimeError(f"no gradient reached the middle of {job.name}")
    return BoundaryPair(model=job.name, activation=caught[0].detach(), gradient=gradient)


def _loss(job: TrainingJob, fields: Sequence[torch.Tensor], chosen: torch.Tensor) -> torch.Tensor:
    if job.loss is None:
        raise RuntimeError(f"{job.name} has its loss in its model")
    return job.loss(job.model(fields[0][chosen]), fields[1][chosen])
