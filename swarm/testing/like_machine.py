"""The settings of like machines, for what computes outside of a device thread."""

import contextlib
from collections.abc import Iterator

import torch

from swarm.train.device import configure_device


@contextlib.contextmanager
def like_machine() -> Iterator[torch.device]:
    """This thread as a device thread of the CPU, which it gives, until the context ends."""
    device = torch.device("cpu")
    threads = torch.get_num_threads()
    configure_device(device)
    try:
        yield device
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(mode=False)
