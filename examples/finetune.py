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
from gpt import CONTEXT, GPT
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from swarm.train.job import TrainingJob
from swarm.train.optimizer import AdamW, Cosine
from swarm.train.text import next_token_loss, windows


class Adapted(nn.Module):
    """A frozen weight and, added to it, a product of two thin matrices that is trained."""

    def __init__(self, weight: Tensor, rank: int = 4) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.down = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        self.up = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.up @ self.down


torch.manual_seed(0)
model = GPT().requires_grad_(requires_grad=False)
if Path("gpt.safetensors").exists():
    model.load_state_dict(load_file("gpt.safetensors"))
for layer in list(model.blocks.modules()):
    for name, weight in list(layer.named_parameters(recurse=False)):
        if weight.dim() == 2:
            register_parametrization(layer, name, Adapted(weight))

text = inspect.getsource(typing).encode()
boundary = len(text) * 9 // 10
job = TrainingJob(
    name="gpt-adapters",
    model=model,
    loss=next_token_loss,
    dataset=windows(text[:boundary], CONTEXT),
    held_out=windows(text[boundary:], CONTEXT),
    optimizer=AdamW(lr=1e-2, schedule=Cosine(warmup=10), clip_norm=1.0),
    micro_batch_size=16,
    micro_batches=4,
    steps=100,
)
