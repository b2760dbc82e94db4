"""Running what an author wrote. It may raise anything, and one line has to tell what, and where."""

import contextlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Final

from swarm.errors import FailureError, MisuseError, UserError

_MODULE_NAME: Final = "swarm_job_file"

_EXAMPLES: Final = 'pip install "fusion-swarm[examples]"'


def describe_error(error: BaseException) -> str:
    """Kind, first line, and the place in the innermost file outside of installed packages, in one line."""
    lines = (line.strip() for line in str(error).splitlines())
    text = next((line for line in lines if line), "")
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = _place(error)
    return f"{said} ({place})" if place else said


def run_file(path: Path) -> ModuleType:
    """The module that the Python file at ``path`` makes when it runs, as if by ``python FILE``.

    Its folder comes first in ``sys.path``, so that it can import its neighbours, also later on. What it
    prints goes to standard error: standard output belongs to the program's own answer.
    Raises MisuseError where there is no such file, FailureError where it does not run to its end.
    """
    if not path.is_file():
        raise MisuseError(f"there is no file {path}")
    spec = importlib.util.spec_from_file_location(_MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise MisuseError(f"{path} is not a Python file; its name ends with .py")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE_NAME] = module
    try:
        with contextlib.redirect_stdout(sys.stderr):
            spec.loader.exec_module(module)
    except UserError as error:
        raise type(error)(f"{path.name}: {error}") from error
    except SystemExit as stop:
        said = (
            stop.code if isinstance(stop.code, str) else f"it ended itself with exit status {stop.code or 0}"
        )
        raise FailureError(f"{path.name}: {said}") from stop
    except SyntaxError as error:
        raise FailureError(f"{path.name} line {error.lineno}: {error.msg}") from error
    except ModuleNotFoundError as error:
        raise FailureError(
            f"{path.name} needs the module {error.name}, which is neither installed nor beside it "
            f"({_place(error)}); what the examples need comes with {_EXAMPLES}"
        ) from error
    except Exception as error:
        raise FailureError(f"{path.name} raised {describe_error(error)}") from error
    return module


def _place(error: BaseException) -> str:
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "site-packages" not in frame.filename and not frame.filename.startswith("<")
    ]
    outside = [frame for frame in own if Path(frame.filename).parent != Path(__file__).parent]
    return f"{Path(outside[-1].filename).name}:{outside[-1].lineno}" if outside else ""
