"""Tensors to numpy arrays and back, as blocks keep them (``swarm.data.tensors``): bfloat16 as raw 16 bits."""

import numpy as np
import torch

from swarm.compress.layout import DTYPES, NAMES
from swarm.data.tensors import STORED, Array
from swarm.wire.tensors import DType


def from_array(array: Array, dtype: DType) -> torch.Tensor:
    """The tensor that ``array`` stands for, on the CPU, sharing its memory where that can be written."""
    writable = array if array.flags.writeable else array.copy()
    if dtype == "bfloat16":
        return torch.from_numpy(writable.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(writable).view(DTYPES[dtype])


def to_array(tensor: torch.Tensor) -> tuple[Array, DType]:
    """The elements of ``tensor``, C-contiguous, and the name of its type."""
    elements = tensor.detach().cpu().contiguous()
    dtype: DType = NAMES[tensor.dtype]  # type: ignore[assignment]
    if dtype == "bfloat16":
        return elements.view(torch.int16).numpy().view(STORED[dtype]), dtype
    return elements.numpy(), dtype
