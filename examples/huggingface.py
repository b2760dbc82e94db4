"""A Hugging Face model as it comes: a small Llama learns how Python's documentation is written.

    pip install "fusion-swarm[examples]"
    swarm train examples/huggingface.py --invite ...

``transformers`` computes the loss where it is given ``labels``, so the job has none of its own, and samples
are named after the arguments of the model's ``forward``. To go on from published weights, take
``AutoModelForCausalLM.from_pretrained(...)`` and its tokenizer in place of the configuration and the bytes.
The last tenth of the text is held out; this run ends near 2.3 nats a byte on it.
"""

from pydoc_data.topics import topics  # type: ignore[import-not-found, unused-ignore]

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM

from swarm.train.job import TrainingJob
from swarm.train.optimizer import AdamW, Cosine

CONTEXT = 32


def windows(text: bytes) -> dict[str, NDArray[np.int64]]:
    """Samples of CONTEXT bytes each; the model itself compares each byte with the one after it."""
    count = len(text) // CONTEXT
    tokens = np.frombuffer(text, np.uint8)[: count * CONTEXT].reshape(count, CONTEXT).astype(np.int64)
    return {"input_ids": tokens, "labels": tokens}


text = "\n".join(topics.values()).encode()
boundary = len(text) * 9 // 10
torch.manual_seed(0)
configuration = LlamaConfig(
    vocab_size=256, hidden_size=64, intermediate_size=176, num_hidden_layers=4, num_attention_heads=4
)

job = TrainingJob(
    name="llama",
    model=LlamaForCausalLM(configuration),
    loss=None,
    dataset=windows(text[:boundary]),
    held_out=windows(text[boundary:]),
    optimizer=AdamW(lr=6e-3, betas=(0.9, 0.95), schedule=Cosine(warmup=15), clip_norm=1.0),
    micro_batch_size=16,
    micro_batches=4,
    steps=150,
)
