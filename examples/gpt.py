"""A small GPT that learns to write like Python's own documentation, byte by byte.

    swarm train examples/gpt.py --invite ...

The text is what ``help()`` knows of the language, about 466 KB of English. The last tenth is held out.
Guessing from byte frequencies costs 3.26 nats a byte, knowing the byte before 2.45; this run ends near 2.0.
"""

from pydoc_data.topics import topics  # type: ignore[import-not-found, unused-ignore]

import torch
from torch import Tensor, nn

from swarm.train.job import TrainingJob
from swarm.train.optimizer import AdamW, Cosine
from swarm.train.text import next_token_loss, windows

CONTEXT, WIDTH, HEADS, BLOCKS = 32, 64, 4, 4


class GPT(nn.Module):
    """Bytes in, (batch, time); out, for each of them, scores of the byte that follows, (batch, time, 256)."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.positions = nn.Embedding(256, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, BLOCKS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 256, bias=False)
        self.head.weight = self.bytes.weight
        for name, weight in self.named_parameters():
            if weight.dim() > 1:  # a block starts out adding almost nothing
                adds = name.endswith(("out_proj.weight", "linear2.weight"))
                nn.init.normal_(weight, std=0.005 if adds else 0.1)

    def forward(self, bytes_in: Tensor) -> Tensor:
        time = bytes_in.shape[1]
        x = self.bytes(bytes_in.long()) + self.positions(torch.arange(time, device=bytes_in.device))
        mask = nn.Transformer.generate_square_subsequent_mask(time, device=bytes_in.device)
        scores: Tensor = self.head(self.blocks(x, mask, is_causal=True))
        return scores


text = "\n".join(topics.values()).encode()
boundary = len(text) * 9 // 10
torch.manual_seed(0)
job = TrainingJob(
    name="gpt",
    model=GPT(),
    loss=next_token_loss,
    dataset=windows(text[:boundary], CONTEXT),
    held_out=windows(text[boundary:], CONTEXT),
    optimizer=AdamW(lr=6e-3, betas=(0.9, 0.95), schedule=Cosine(warmup=15), clip_norm=1.0),
    micro_batch_size=16,
    micro_batches=4,
    steps=150,
)
