"""Language models as ``transformers`` has them, at small widths: attention of four kinds, and experts."""

import importlib
from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from swarm.testing.zoo.entry import Fields, ZooModel

VOCABULARY: Final = 61
TIME: Final = 12
BATCH: Final = 2
MASK: Final = 3
"""The token that hides another from BERT."""
IGNORED: Final = -100
"""The target of tokens that are not asked for, as ``cross_entropy`` has it."""

_DECODER: Final = {
    "vocab_size": VOCABULARY,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 16,
    "attention_dropout": 0.0,
}


def _make(kind: str, head: str, **settings: Any) -> nn.Module:
    """The class ``kind`` + ``head`` of transformers with its configuration class's ``settings``."""
    library = importlib.import_module("transformers")
    configuration = getattr(library, f"{kind}Config")(**settings)
    module: nn.Module = getattr(library, kind + head)(configuration)
    return module


def gpt2(*, width: int = 24, positions: int = 16) -> nn.Module:
    """GPT-2: learned positions, one fused projection, and an output head tied to the embedding."""
    sizes = {"vocab_size": VOCABULARY, "n_positions": positions, "n_embd": width, "n_layer": 2, "n_head": 4}
    return _make("GPT2", "LMHeadModel", **sizes, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)


def llama() -> nn.Module:
    """Llama: rotary positions, grouped queries, gated perceptrons and RMS norms."""
    return _make("Llama", "ForCausalLM", **_DECODER)


def qwen3() -> nn.Module:
    """Qwen3: Llama with normalised queries and keys, heads wider than the model, and a tied head."""
    return _make("Qwen3", "ForCausalLM", **_DECODER, head_dim=8, tie_word_embeddings=True)


def mixtral() -> nn.Module:
    """Mixtral: each token goes to two of four experts, and a second loss spreads tokens over them."""
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2, "output_router_logits": True}
    return _make("Mixtral", "ForCausalLM", **_DECODER, **experts)


def bert() -> nn.Module:
    """BERT: attention both ways, tokens of two segments, and a head that is tied to the embedding."""
    sizes = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return _make("Bert", "ForMaskedLM", vocab_size=VOCABULARY, max_position_embeddings=16, **sizes, **dropout)


def next_token(outputs: Mapping[str, torch.Tensor], tokens_BT: torch.Tensor) -> torch.Tensor:  # noqa: N803
    """Mean nats of each token but the first, from the scores at the one before it (B batch, T time)."""
    return functional.cross_entropy(outputs["logits"][:, :-1].flatten(0, 1), tokens_BT[:, 1:].flatten())


def text(chance: torch.Generator) -> Fields:
    """Tokens, and the same as the target."""
    tokens = torch.randint(0, VOCABULARY, (BATCH, TIME), generator=chance)
    return {"input_ids": tokens, "labels": tokens.clone()}


def masked_text(chance: torch.Generator) -> Fields:
    """Padded text of two segments with every fourth token hidden; only those are asked for."""
    tokens = torch.randint(MASK + 1, VOCABULARY, (BATCH, TIME), generator=chance)
    hidden = torch.arange(TIME).remainder(4).eq(1).expand(BATCH, TIME)
    present = torch.ones(BATCH, TIME, dtype=torch.int64)
    present[1, -3:] = 0
    return {
        "input_ids": tokens.where(~hidden, MASK),
        "attention_mask": present,
        "token_type_ids": (torch.arange(TIME) >= TIME // 2).long().expand(BATCH, TIME).contiguous(),
        "labels": tokens.where(hidden, IGNORED),
    }


MODELS: Final = {
    "gpt2": ZooModel(make=gpt2, loss=next_token, sample=text),
    "llama": ZooModel(make=llama, loss=None, sample=text),
    "qwen3": ZooModel(make=qwen3, loss=None, sample=text),
    "mixtral": ZooModel(make=mixtral, loss=None, sample=text),
    "bert": ZooModel(make=bert, loss=None, sample=masked_text),
}
