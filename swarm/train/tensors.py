"""Tensors between the graph's words and torch's: specifications, layouts, and what other peers claim."""

from typing import Final

import torch

from swarm.compress.layout import DTYPES, travels
from swarm.errors import LocalError, RemoteProtocolError, TrainingError
from swarm.graph.dag import Value
from swarm.wire.tensors import TensorHeader, check_header
from swarm.wire.text import printable

LONGEST_SHOWN: Final = 300
"""Characters of a graph's text in one of our sentences, which have at most a thousand."""


def shown(text: str) -> str:
    """Text that came with a graph, fit to be part of a sentence for people."""
    return printable(text)[:LONGEST_SHOWN]


def check_against(header: TensorHeader, value: Value) -> None:
    """Raise RemoteProtocolError unless ``header`` describes a tensor that ``value``, or its gradient, may be.

    To be called before memory is spent on the payload. Strides are the sender's own matter, within the limits
    of :func:`swarm.wire.tensors.check_header`.
    """
    spec = value.spec
    if (header.dtype, header.shape) != (spec.dtype, spec.shape):
        raise RemoteProtocolError(
            f"{shown(value.name)} is {spec.dtype} of shape {spec.shape}, "
            f"but {header.dtype} of shape {header.shape} was sent"
        )
    check_header(header)


def check_made(tensor: torch.Tensor, value: Value) -> None:
    """Raise TrainingError unless ``tensor``, which an operator made, is what the graph says ``value`` is."""
    spec = value.spec
    if tensor.dtype != DTYPES[spec.dtype] or tuple(tensor.shape) != spec.shape:
        raise TrainingError(
            f"{shown(value.name)} came out as {tensor.dtype} of shape {tuple(tensor.shape)} with torch "
            f"{torch.__version__}, and was captured as {spec.dtype} of shape {spec.shape}; "
            "use the version of torch that the job's author has"
        )


def laid_out(tensor: torch.Tensor, value: Value, device: torch.device) -> torch.Tensor:
    """A copy of ``tensor`` in new memory on ``device``, with exactly the strides that capture saw.

    Kernels see strides and alignment, so the bits of a run depend on them, and weights arrive as contiguous
    blocks, inputs from anywhere. Layouts that do not travel become contiguous. Raises LocalError where type
    or shape are not those of ``value``.
    """
    spec = value.spec
    if tensor.dtype != DTYPES[spec.dtype] or tuple(tensor.shape) != spec.shape:
        raise LocalError(
            f"{shown(value.name)} is {spec.dtype} of shape {spec.shape}, "
            f"but {tensor.dtype} of shape {tuple(tensor.shape)} was given"
        )
    header = TensorHeader(dtype=spec.dtype, shape=spec.shape, strides=spec.strides)
    memory = torch.empty(header.extent, dtype=tensor.dtype, device=device)
    made = memory.as_strided(spec.shape, spec.strides)
    if 0 in spec.strides or not travels(made):
        made = torch.empty(spec.shape, dtype=tensor.dtype, device=device)
    return made.copy_(tensor.detach())
