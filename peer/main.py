"""The ``swarm`` command. Each command's work is imported only when it is asked for."""

import sys

from bootstrap.commandline import add_command, make_app, start
from bootstrap.main import run_bootstrap
from bootstrap.options import BootstrapOptions
from peer.config import CreateOptions, InviteOptions, MembersOptions, StatusOptions
from swarm.services.version import program_version

PROGRAM = "swarm"

app = make_app("Train one neural network on many people's GPUs, peer to peer.", version=program_version)


def _create(options: CreateOptions) -> None:
    from peer.commands.organise import create  # noqa: PLC0415

    create(options)


def _invite(options: InviteOptions) -> None:
    from peer.commands.organise import invite  # noqa: PLC0415

    invite(options)


def _members(options: MembersOptions) -> None:
    from peer.commands.members import members  # noqa: PLC0415

    members(options)


def _status(options: StatusOptions) -> None:
    from peer.commands.status import status  # noqa: PLC0415

    status(options)


add_command(app, "create", CreateOptions, _create)
add_command(app, "invite", InviteOptions, _invite)
add_command(app, "members", MembersOptions, _members)
add_command(app, "bootstrap", BootstrapOptions, run_bootstrap)
add_command(app, "status", StatusOptions, _status)


def main() -> None:
    """Entry point of the console script."""
    sys.exit(start(app, PROGRAM))
