"""The command line of ``python -m bootstrap``."""

import sys
from collections.abc import Sequence
from typing import NoReturn

from bootstrap.commandline import answer_for, run_program, single_command, start
from bootstrap.options import BootstrapOptions
from bootstrap.parsing import CAN_READ_APART, read_apart

PROGRAM = "bootstrap"


def run_bootstrap(options: BootstrapOptions) -> None:
    """Run a bootstrap node."""
    from bootstrap.node import bootstrap  # noqa: PLC0415 - not needed for --help

    bootstrap(options)


def bootstrap_program(program: str, name: str, arguments: Sequence[str]) -> int:
    """Run a bootstrap node as ``arguments`` of the command ``name`` say; returns the exit status."""
    if not CAN_READ_APART:
        return run_program(
            single_command(PROGRAM, BootstrapOptions, run_bootstrap), program, arguments, name=name
        )
    options = read_apart(BootstrapOptions, program, name, arguments)
    return options if isinstance(options, int) else answer_for(program, lambda: run_bootstrap(options))


def main() -> NoReturn:
    """Entry point."""
    program = f"python -m {PROGRAM}"
    start(program, lambda: bootstrap_program(program, program, sys.argv[1:]))
