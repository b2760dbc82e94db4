"""Tensors between the graph's words and torch's: specifications, layouts, and what other peers claim."""

from typing import Final

import torch

from swarm.compress.layout import DTYPES, travels_as
from swarm.errors import RemoteProtocolError, TrainingError
from swarm.graph.dag import TensorSpec, Value
from swarm.wire.tensors import TensorHeader, check_header, dense_strides
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


def check_made(tensor: torch.Tensor, value: Value, maker: str) -> None:
    """Raise TrainingError unless ``tensor``, which ``maker`` made, is what the graph says ``value`` is."""
    spec = value.spec
    if tensor.dtype != DTYPES[spec.dtype] or tuple(tensor.shape) != spec.shape:
        raise TrainingError(
            f"{maker} makes {_kind(tensor)} with torch {torch.__version__}, and made {spec.dtype} of shape "
            f"{spec.shape} where the model was captured; use the version of torch that the job's author has"
        )


def travelling_strides(spec: TensorSpec) -> tuple[int, ...]:
    """The strides in which a tensor of ``spec`` is laid out: its own, or contiguous ones where a layout like
    that does not travel."""
    if 0 in spec.strides or not travels_as(spec.shape, spec.strides):
        return dense_strides(spec.shape, tuple(range(len(spec.shape))))
    return spec.strides


def laid_out(tensor: torch.Tensor, value: Value, device: torch.device) -> torch.Tensor:
    """A copy of ``tensor`` in new memory on ``device``, with exactly the strides that capture saw.

    Kernels see strides and alignment, so the bits of a run depend on them, and weights arrive as contiguous
    blocks, inputs from anywhere. Layouts that do not travel become contiguous. Raises TrainingError where
    type or shape are not those of ``value``.
    """
    spec = value.spec
    if tensor.dtype != DTYPES[spec.dtype] or tuple(tensor.shape) != spec.shape:
        raise TrainingError(
            f"{shown(value.name)} is {spec.dtype} of shape {spec.shape} in the job's graph, but "
            f"{_kind(tensor)} was given"
        )
    strides = travelling_strides(spec)
    extent = TensorHeader(dtype=spec.dtype, shape=spec.shape, strides=strides).extent
    memory = torch.empty(extent, dtype=tensor.dtype, device=device)
    return memory.as_strided(spec.shape, strides).copy_(tensor.detach())


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
