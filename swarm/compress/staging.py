"""Tensors on their way between a device and the CPU, through pinned memory where that lets the device go on.

On CUDA and XPU a copy to or from pinned memory runs beside the device's work. What leaves may be read once an
event says that it is there; what enters keeps its memory until then, which torch's allocator of pinned memory
sees to. On the CPU nothing is copied, and on MPS, whose memory is the CPU's own, copies wait.
"""

from collections.abc import Callable
from typing import Final

import torch

_PINNING: Final = frozenset({"cuda", "xpu"})


def pins(device: torch.device) -> bool:
    """Whether copies from and to ``device`` go through pinned memory, without waiting."""
    return device.type in _PINNING


def leave(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Begin to bring ``tensor``, which lies densely in one dimension, to the CPU.

    What is returned waits until it is there, on any thread. On the CPU it is the tensor itself.
    """
    if not pins(tensor.device):
        there = tensor.cpu()
        return lambda: there
    there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor, non_blocking=True)
    arrived = torch.Event(tensor.device)
    arrived.record()

    def wait() -> torch.Tensor:
        arrived.synchronize()
        return there

    return wait


def room(elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Memory on the CPU for elements that :func:`enter` then brings to ``device``."""
    return torch.empty(elements, dtype=dtype, pin_memory=pins(device))


def enter(memory: torch.Tensor, device: torch.device) -> torch.Tensor:
    """``memory`` on ``device``, for what is asked of it from now on; the CPU's own stays as it is."""
    return memory.to(device, non_blocking=True)
