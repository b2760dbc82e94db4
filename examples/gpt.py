"""A small GPT that learns to write like Python's own documentation, byte by byte.

    swarm train examples/gpt.py --invite ...

The text is what ``help()`` knows of the language: the strings of ``pydoc_data.topics``, about 466 KB of
English, the same on every machine with the same Python. The last tenth is held out. Guessing from byte
frequencies costs 3.26 nats a byte, knowing the byte before 2.45; this run ends near 2.0.

Shapes are suffixes: B batch, T time, C channels, H heads, V vocabulary.
"""
# ruff: noqa: N803, N806

from pydoc_data.topics import topics  # type: ignore[import-not-found, unused-ignore]

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from swarm.train.job import TrainingJob
from swarm.train.optimizer import AdamW, Cosine

VOCABULARY = 256
CONTEXT = 32
CHANNELS = 64
HEADS = 4
BLOCKS = 4


class Attention(nn.Module):
    """Each byte looks back at the ones before it."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(CHANNELS, 3 * CHANNELS)
        self.output = nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        """(B, T, C) to (B, T, C)."""
        batch, time, channels = x_BTC.shape
        query, key, value = (
            part.view(batch, time, HEADS, channels // HEADS).transpose(1, 2)
            for part in self.query_key_value(x_BTC).split(channels, dim=2)
        )
        y_BHTC = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        output: torch.Tensor = self.output(y_BHTC.transpose(1, 2).reshape(batch, time, channels))
        return output


class Block(nn.Module):
    """Attention, then a perceptron, each added to what came in."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(CHANNELS)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(CHANNELS)
        self.perceptron = nn.Sequential(
            nn.Linear(CHANNELS, 4 * CHANNELS), nn.GELU(), nn.Linear(4 * CHANNELS, CHANNELS)
        )

    def forward(self, x_BTC: torch.Tensor) -> torch.Tensor:
        """(B, T, C) to (B, T, C)."""
        x_BTC = x_BTC + self.attention(self.norm1(x_BTC))
        y_BTC: torch.Tensor = x_BTC + self.perceptron(self.norm2(x_BTC))
        return y_BTC


class GPT(nn.Module):
    """Bytes in, for each of them the scores of the byte that follows."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = nn.Embedding(VOCABULARY, CHANNELS)
        self.positions = nn.Embedding(CONTEXT, CHANNELS)
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))
        self.norm = nn.LayerNorm(CHANNELS)
        self.head = nn.Linear(CHANNELS, VOCABULARY, bias=False)
        self.head.weight = self.bytes.weight
        for embedding in (self.bytes, self.positions):
            nn.init.normal_(embedding.weight, std=0.1)
        for name, weight in self.blocks.named_parameters():
            if name.endswith(("attention.output.weight", "perceptron.2.weight")):
                nn.init.normal_(weight, std=0.005)  # a block starts out adding almost nothing

    def forward(self, bytes_BT: torch.Tensor) -> torch.Tensor:
        """(B, T) bytes to (B, T, V) scores."""
        positions_T = torch.arange(bytes_BT.shape[1], device=bytes_BT.device)
        x_BTC = self.bytes(bytes_BT.long()) + self.positions(positions_T)
        scores_BTV: torch.Tensor = self.head(self.norm(self.blocks(x_BTC)))
        return scores_BTV


def cross_entropy(scores_BTV: torch.Tensor, target_BT: torch.Tensor) -> torch.Tensor:
    """Mean nats per byte."""
    return functional.cross_entropy(scores_BTV.flatten(0, 1), target_BT.long().flatten())


def windows(text: bytes) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Inputs and targets (samples, T): the text in windows, and the same one byte later."""
    data = np.frombuffer(text, dtype=np.uint8)
    count = (len(data) - 1) // CONTEXT
    inputs, targets = data[: count * CONTEXT], data[1 : count * CONTEXT + 1]
    return inputs.reshape(count, CONTEXT), targets.reshape(count, CONTEXT)


text = "\n".join(topics.values()).encode()
boundary = len(text) * 9 // 10
torch.manual_seed(0)

job = TrainingJob(
    name="gpt",
    model=GPT(),
    loss=cross_entropy,
    dataset=windows(text[:boundary]),
    held_out=windows(text[boundary:]),
    optimizer=AdamW(lr=6e-3, betas=(0.9, 0.95), schedule=Cosine(warmup=15), clip_norm=1.0),
    micro_batch_size=16,
    micro_batches=4,
    steps=150,
)
