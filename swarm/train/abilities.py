"""What this machine cannot run of what graphs may ask for: torch differs by version, data types by device."""

from collections.abc import Collection
from typing import Any, Final

import torch

from swarm.compress.layout import DTYPES, holds
from swarm.errors import FailureError
from swarm.train.program_arguments import resolve

_CHANGED: Final = {"aten._fused_rms_norm.default": 2}
"""Operators that torch 2.8, the oldest that we run on, has in another form: how many tensors they return."""


def lacking(operators: Collection[str], device: torch.device) -> tuple[str, ...]:
    """Which of ``operators`` this build of torch does not have, and which data types ``device`` does not."""
    dtypes = (name for name, dtype in DTYPES.items() if not holds(device, dtype))
    return (*sorted(name for name in operators if not _has(name)), *sorted(dtypes))


def _has(operator: str) -> bool:
    try:
        found: Any = resolve(operator)
    except FailureError:
        return False
    return operator not in _CHANGED or len(found._schema.returns) == _CHANGED[operator]  # noqa: SLF001  its only name
