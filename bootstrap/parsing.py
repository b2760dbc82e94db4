"""Reading a command line in a process of its own, for a program that stays for months.

What the option parser loads to check a few words is never given back: a tenth of a bootstrap node's memory.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from bootstrap.commandline import run_program, single_command
from swarm.errors import LocalError

_Options = TypeVar("_Options")

CAN_READ_APART: Final = hasattr(os, "fork")
"""Windows starts no copy of a process; there the command line is read where it is."""


def read_apart(options: type[_Options], program: str, name: str, arguments: Sequence[str]) -> _Options | int:
    """The ``options`` in ``arguments`` of the command that users call ``name``, a part of ``program``.

    Where there is nothing to run, since help was asked for or a word is wrong, all has been said by then, and
    this returns the exit status. To be called before there is a second thread.
    """
    source, target = os.pipe()
    reader = os.fork()
    if not reader:
        os.close(source)
        app = single_command(name, options, partial(_hand_over, target))
        os._exit(run_program(app, program, arguments, name=name))
    os.close(target)
    with os.fdopen(source, "rb") as pipe:
        found = pipe.read()
    _, status = os.waitpid(reader, 0)
    if not found:
        return os.waitstatus_to_exitcode(status)
    return msgspec.json.decode(found, type=options, dec_hook=_as_path)


def _hand_over(target: int, options: object) -> None:
    with os.fdopen(target, "wb") as pipe:
        pipe.write(msgspec.json.encode(options, enc_hook=str))


def _as_path(kind: type, text: Any) -> Path:
    if kind is not Path:
        raise LocalError(f"an option that is a {kind.__name__} does not cross from one process to another")
    return Path(text)
