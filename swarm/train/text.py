"""What language models train on: windows over a text, and the loss of the token that comes next.

Shapes are suffixes: N samples, B batch, T time, V vocabulary.
"""
# ruff: noqa: N803

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from swarm.errors import MisuseError


def windows(tokens: bytes | NDArray[Any], context: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs and targets (N, T) for T of ``context``: the text in windows, and the same one token later.

    The types of tokens stay: bytes take an eighth of what 64-bit integers do, and peers download them. What
    is left at the end of the text is left out.
    Raises MisuseError where the text has not a window and the token after it.
    """
    stream = np.frombuffer(tokens, np.uint8) if isinstance(tokens, bytes) else tokens
    if stream.ndim != 1 or context < 1 or len(stream) <= context:
        raise MisuseError(
            f"windows of {context} tokens need one row of more than that, and not {list(stream.shape)}"
        )
    end = (len(stream) - 1) // context * context
    return stream[:end].reshape(-1, context), stream[1 : end + 1].reshape(-1, context)


def next_token_loss(scores_BTV: torch.Tensor, target_BT: torch.Tensor) -> torch.Tensor:
    """Mean nats a token of ``scores``, which are no probabilities yet, where ``target`` is the right one."""
    return functional.cross_entropy(scores_BTV.flatten(0, 1), target_BT.long().flatten())
