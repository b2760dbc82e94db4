"""The ``swarm`` command. Each command's work is imported only when it is asked for."""

import sys
from typing import NoReturn

from bootstrap.commandline import add_command, make_app, run_program, start
from bootstrap.main import bootstrap_program, run_bootstrap
from bootstrap.options import BootstrapOptions
from peer.config import (
    CancelOptions,
    CreateOptions,
    ExportOptions,
    InviteOptions,
    JobsOptions,
    MembersOptions,
    PauseOptions,
    PeerOptions,
    ResumeOptions,
    RevokeOptions,
    StatusOptions,
    TrainOptions,
)
from peer.demo.options import DemoOptions
from swarm.services.version import program_version

PROGRAM = "swarm"

app = make_app("Train one neural network on many people's GPUs, peer to peer.", version=program_version)


def _demo(options: DemoOptions) -> int:
    from peer.demo.run import demo  # noqa: PLC0415

    return demo(options)


def _create(options: CreateOptions) -> None:
    from peer.commands.organise import create  # noqa: PLC0415

    create(options)


def _invite(options: InviteOptions) -> None:
    from peer.commands.organise import invite  # noqa: PLC0415

    invite(options)


def _members(options: MembersOptions) -> None:
    from peer.commands.members import members  # noqa: PLC0415

    members(options)


def _revoke(options: RevokeOptions) -> None:
    from peer.commands.revoke import revoke  # noqa: PLC0415

    revoke(options)


def _peer(options: PeerOptions) -> None:
    from peer.commands.peer import peer  # noqa: PLC0415

    peer(options)


def _train(options: TrainOptions) -> int:
    from peer.commands.train import train  # noqa: PLC0415

    return train(options)


def _jobs(options: JobsOptions) -> None:
    from peer.commands.jobs import jobs  # noqa: PLC0415

    jobs(options)


def _cancel(options: CancelOptions) -> None:
    from peer.commands.jobs import cancel  # noqa: PLC0415

    cancel(options)


def _export(options: ExportOptions) -> None:
    from peer.commands.jobs import export  # noqa: PLC0415

    export(options)


def _pause(options: PauseOptions) -> int:
    from peer.commands.pause import pause  # noqa: PLC0415

    return pause(options)


def _resume(options: ResumeOptions) -> None:
    from peer.commands.pause import resume  # noqa: PLC0415

    resume(options)


def _status(options: StatusOptions) -> None:
    from peer.commands.status import status  # noqa: PLC0415

    status(options)


add_command(app, "demo", DemoOptions, _demo)
add_command(app, "create", CreateOptions, _create)
add_command(app, "invite", InviteOptions, _invite)
add_command(app, "members", MembersOptions, _members)
add_command(app, "revoke", RevokeOptions, _revoke)
add_command(app, "bootstrap", BootstrapOptions, run_bootstrap)
add_command(app, "peer", PeerOptions, _peer)
add_command(app, "train", TrainOptions, _train)
add_command(app, "jobs", JobsOptions, _jobs)
add_command(app, "cancel", CancelOptions, _cancel)
add_command(app, "export", ExportOptions, _export)
add_command(app, "pause", PauseOptions, _pause)
add_command(app, "resume", ResumeOptions, _resume)
add_command(app, "status", StatusOptions, _status)


def main() -> NoReturn:
    """Entry point of the console script."""
    start(PROGRAM, _run)


def _run() -> int:
    match sys.argv[1:]:
        case ["bootstrap", *arguments]:
            return bootstrap_program(PROGRAM, f"{PROGRAM} bootstrap", arguments)
        case arguments:
            return run_program(app, PROGRAM, arguments)
