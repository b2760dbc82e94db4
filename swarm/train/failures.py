"""What torch raises, in our words: one line that names the operator, whatever the kind of the exception.

Graphs, manifests and tensors come from other peers, and torch has no list of what it raises for arguments
that it does not like: RuntimeError, OverflowError, MemoryError and others. So whoever runs a part of a job
runs it in here, and what comes out is the failure of that job alone.
"""

import contextlib
from collections.abc import Iterator
from typing import Final

import torch

from swarm.errors import DeviceMemoryError, SwarmError, TrainingError
from swarm.graph.dag import Operator
from swarm.train.tensors import shown

_FULL: Final = ("DefaultCPUAllocator: can't allocate memory", "MPS backend out of memory")
"""What torch says without an exception of its own for it."""


@contextlib.contextmanager
def failing(what: str) -> Iterator[None]:
    """Raise TrainingError, ``what`` failed and why, for anything that is not an error of this program.

    Where that is for want of memory, the error is a DeviceMemoryError.
    """
    try:
        yield
    except SwarmError:
        raise
    except Exception as error:
        raise failed(what, error) from error


def failed(what: str, error: Exception) -> TrainingError:
    """The one line for an exception of torch."""
    kind = DeviceMemoryError if is_out_of_memory(error) else TrainingError
    return kind(f"{what} failed: {reason(error)}")


def is_out_of_memory(error: Exception) -> bool:
    """Whether torch raised ``error`` for want of memory."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _FULL)


def reason(error: Exception) -> str:
    """The first line that ``error`` has to say, or its kind."""
    lines = (line.strip() for line in str(error).splitlines())
    return shown(next((line for line in lines if line), type(error).__name__))


def described(operator: Operator) -> str:
    """An operator for people: ``the operator linear in module 'blocks.0' at gpt.py:31``."""
    _, _, name = operator.target.partition(".")
    module = f"module '{operator.path}'" if operator.path else "the model itself"
    source = f" at {operator.source}" if operator.source else ""
    return shown(f"the operator {name.partition('.')[0]} in {module}{source}")
