"""Low-rank adapters (LoRA, arXiv 2106.09685) teach the GPT of ``gpt.py`` Python in place of English.

    swarm train examples/finetune.py --invite ...
    swarm export JOB -o adapters.safetensors --only-trained

The base is frozen: it has no gradients and no optimizer state. Its weights are those that ``swarm export``
wrote of ``gpt.py`` to ``gpt.safetensors`` in this folder; without that file it is an untrained one.
"""

import inspect
import typing
from pathlib import Path

import torch
from gpt import GPT, cross_entropy, windows
from safetensors.torch import load_file
from torch import nn
from torch.nn.functional import linear

from swarm.train.job import TrainingJob
from swarm.train.optimizer import AdamW, Cosine


class Adapted(nn.Module):
    """A frozen layer, and beside it a product of two thin matrices that is trained."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(requires_grad=False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., in) to (..., out)."""
        y: torch.Tensor = self.base(x) + linear(linear(x, self.down), self.up)
        return y


torch.manual_seed(0)
model = GPT().requires_grad_(requires_grad=False)
if Path("gpt.safetensors").exists():
    model.load_state_dict(load_file("gpt.safetensors"))
for path, layer in list(model.blocks.named_modules()):
    if isinstance(layer, nn.Linear):
        model.blocks.set_submodule(path, Adapted(layer))

text = inspect.getsource(typing).encode()
boundary = len(text) * 9 // 10
job = TrainingJob(
    name="gpt-adapters",
    model=model,
    loss=cross_entropy,
    dataset=windows(text[:boundary]),
    held_out=windows(text[boundary:]),
    optimizer=AdamW(lr=1e-2, schedule=Cosine(warmup=10), clip_norm=1.0),
    micro_batch_size=16,
    micro_batches=4,
    steps=100,
)
