"""Where in the author's model something happened: module path and source line, for people."""

import linecache
import re
import sysconfig
import traceback
from pathlib import Path
from typing import Final

import torch
from msgspec import Struct
from torch import fx, nn

from swarm.train.capture.calling import measured

LOSS_PATH: Final = "loss"
METRIC_PATH: Final = "metric"
"""The path of operators that come from the job's loss."""

MODEL_PREFIX: Final = "model."
"""What the traced wrapper puts before the names of the author's module."""

_TOOLS: Final = (str(Path(torch.__file__).parent), str(Path(__file__).parent), "<")
_PYTHON: Final = sysconfig.get_paths()["stdlib"]
_INSTALLED: Final = ("site-packages", "dist-packages")
_FRAME: Final = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)')
_REPEAT: Final = re.compile(r"@\d+$")
_LONGEST_STATEMENT: Final = 80

_Frame = tuple[str, int]


class Place(Struct, frozen=True, kw_only=True):
    """A module of the model and the line of its code; what is not known is empty."""

    path: str = ""
    source: str = ""
    statement: str = ""

    def __str__(self) -> str:
        line = f" at {self.source}" if self.source else ""
        statement = f" `{self.statement}`" if self.statement else ""
        return f"{self.path or 'the model'}{line}{statement}"


class Refusal(Exception):  # noqa: N818  it never leaves the package: ``capture`` makes a CaptureError of it
    """Why the module cannot be captured, and where, if that is known."""

    def __init__(self, sentence: str, place: Place | None = None) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.place = place


class HiddenDraw(Refusal):
    """Somebody drew from a generator of the whole process meanwhile: the module, or another thread."""


def of_node(node: fx.Node) -> Place:
    """The place that export wrote on ``node``."""
    stack = node.meta.get("nn_module_stack") or {}
    inner = next(reversed(stack.values()), None)
    path = "" if inner is None else _model_path(str(inner[0]))
    frames = [(match["file"], int(match["line"])) for match in _FRAME.finditer(node.stack_trace or "")]
    return _place(path, frames)


def of_error(error: BaseException, model: nn.Module) -> Place:
    """Where in ``model``'s code ``error`` was raised, as far as its tracebacks tell."""
    names = {id(part): name for name, part in model.named_modules()}
    place = Place()
    current: BaseException | None = error
    while current is not None:
        path, frames = "", []
        for frame, line in traceback.walk_tb(current.__traceback__):
            path = names.get(id(frame.f_locals.get("self")), path)
            if frame.f_code is measured.__code__:
                path = LOSS_PATH
            frames.append((frame.f_code.co_filename, line))
        found = _place(path, frames)
        place = found if found.source or not place.source else place
        current = current.__cause__ or current.__context__
    return place


def _model_path(path: str) -> str:
    """The author's name for the module that export calls ``path``."""
    path = _REPEAT.sub("", path)
    if not path:
        return LOSS_PATH
    return "" if path == MODEL_PREFIX[:-1] else path.removeprefix(MODEL_PREFIX)


def _place(path: str, frames: list[_Frame]) -> Place:
    """The innermost of ``frames`` that is the author's own. Folder names stay on the author's machine."""
    for file, line in reversed(frames):
        if is_model_code(file):
            statement = linecache.getline(file, line).strip()[:_LONGEST_STATEMENT]
            return Place(path=path, source=f"{Path(file).name}:{line}", statement=statement)
    return Place(path=path)


def is_model_code(file: str) -> bool:
    """Whether ``file`` is the author's, or a library's that they use, and not torch's, Python's or ours."""
    if file.startswith(_TOOLS):
        return False
    return not file.startswith(_PYTHON) or any(folder in file for folder in _INSTALLED)
