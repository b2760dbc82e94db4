"""The command line of ``python -m bootstrap``."""

from typing import NoReturn

from bootstrap.commandline import single_command, start
from bootstrap.options import BootstrapOptions

PROGRAM = "bootstrap"


def run_bootstrap(options: BootstrapOptions) -> None:
    """Run a bootstrap node."""
    from bootstrap.node import bootstrap  # noqa: PLC0415 - not needed for --help

    bootstrap(options)


def main() -> NoReturn:
    """Entry point."""
    start(single_command(PROGRAM, BootstrapOptions, run_bootstrap), f"python -m {PROGRAM}")
