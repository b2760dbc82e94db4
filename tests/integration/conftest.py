"""A small job that trains in a second, with what is hard to cut: tied parameters, BatchNorm, dropout."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from swarm.train.job import TrainingJob
from swarm.train.optimizer import AdamW, Cosine

pytest.register_assert_rewrite("tests.integration.trials")

VOCABULARY = 16
LENGTH = 6


class Tied(nn.Module):
    """Embedding, two blocks with BatchNorm and dropout, and the embedding again as the head."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, 12)
        self.first = nn.Linear(12, 12)
        self.norm = nn.BatchNorm1d(LENGTH)
        self.dropout = nn.Dropout(0.2)
        self.second = nn.Linear(12, 12)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        y = self.dropout(functional.gelu(self.norm(self.first(x))))
        scores: torch.Tensor = functional.linear(torch.tanh(self.second(y)) + x, self.embedding.weight)
        return scores


def nats(scores: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), target.flatten())


@pytest.fixture
def make_job() -> Callable[..., TrainingJob]:
    """Makes the job; keywords replace its fields."""

    def make(**changes: Any) -> TrainingJob:
        torch.manual_seed(3)
        tokens = np.random.default_rng(5).integers(0, VOCABULARY, (80, LENGTH + 1))
        fields: dict[str, Any] = {
            "name": "tied",
            "model": Tied(),
            "loss": nats,
            "dataset": (tokens[:64, :-1], tokens[:64, 1:]),
            "held_out": (tokens[64:, :-1], tokens[64:, 1:]),
            "optimizer": AdamW(lr=1e-2, schedule=Cosine(warmup=2), clip_norm=0.5),
            "micro_batch_size": 4,
            "micro_batches": 3,
            "steps": 6,
        }
        return TrainingJob(**(fields | changes))

    return make
