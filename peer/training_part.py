"""The part of the program that needs torch: whether it is installed, and where its examples are."""

import importlib.util
import os
from pathlib import Path
from typing import Final

from swarm.errors import FailureError, LocalError, MisuseError

_MODULES: Final = ("torch", "safetensors")


def require_training_part() -> None:
    """Raise FailureError, with what to do, where torch or safetensors is not installed. Imports neither."""
    if any(importlib.util.find_spec(name) is None for name in _MODULES):
        raise FailureError('install the training part: pip install "fusion-swarm[peer]"')


def writable_file(given: Path) -> Path:
    """``given`` as an absolute path to write weights to; raises MisuseError where that cannot be."""
    path = given.expanduser().absolute()
    if not path.parent.is_dir():
        raise MisuseError(f"there is no folder {path.parent} to write {path.name} to")
    if path.is_dir():
        raise MisuseError(f"{path} is a folder: give -o a file name")
    if not os.access(path.parent, os.W_OK):
        raise MisuseError(f"{path.parent} cannot be written to: give -o another file")
    return path


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
