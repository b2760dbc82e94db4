"""A training job for a model of the zoo: what its author would write."""

from typing import Any

import torch

from swarm.testing.zoo import ZOO
from swarm.train.job import TrainingJob
from swarm.train.optimizer import AdamW, Cosine


def zoo_job(name: str, *, steps: int, batches: int = 6, **settings: Any) -> TrainingJob:
    """Trains the model ``name`` on as many of its micro-batches as ``batches``; one more is held out.

    ``settings`` are those of the job, in place of AdamW with clipping and two micro-batches a step.
    """
    entry, chance = ZOO[name], torch.Generator().manual_seed(1)
    drawn = [entry.sample(chance) for _ in range(batches + 1)]
    fields = {key: torch.cat([batch[key] for batch in drawn[:-1]]) for key in drawn[0]}
    torch.manual_seed(0)
    usual: dict[str, Any] = {
        "optimizer": AdamW(lr=1e-3, schedule=Cosine(warmup=2), weight_decay=0.1, clip_norm=1.0),
        "micro_batches": 2,
    }
    return TrainingJob(
        name=name,
        model=entry.make(),
        loss=entry.loss,
        dataset=fields,
        held_out=drawn[-1],
        micro_batch_size=len(next(iter(drawn[-1].values()))),
        steps=steps,
        **(usual | settings),
    )
