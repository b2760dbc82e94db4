"""The part of the program that needs torch: whether it is installed, and where its examples are."""

import importlib.util
from pathlib import Path
from typing import Final

from swarm.errors import FailureError, LocalError

_MODULES: Final = ("torch", "safetensors")


def require_training_part() -> None:
    """Raise FailureError, with what to do, where torch or safetensors is not installed. Imports neither."""
    if any(importlib.util.find_spec(name) is None for name in _MODULES):
        raise FailureError('install the training part: pip install "fusion-swarm[peer]"')


def example_file(name: str) -> Path:
    """The file of an example (``gpt``, ``resnet``): beside this package where it is installed, else in the
    clone it runs from.
    """
    here = Path(__file__).resolve().parent
    for folder in (here / "examples", here.parent / "examples"):
        file = folder / f"{name}.py"
        if file.is_file():
            return file
    raise LocalError(f"the example {name} is not part of this installation")
