"""The options of every command, each a dataclass; the text of an option is its ``help``.

Values are checked as they are read (``bootstrap.values``); what is wrong is said in one line that names the
option.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final

import typer

from bootstrap.commandline import parsed_by
from bootstrap.options import HomeOptions, JsonOption, NodeOptions
from bootstrap.values import parse_duration, parse_reachable
from swarm.net.address import Address

WEEK: Final = 7 * 86400

_SwarmArgument = Annotated[str, typer.Argument(metavar="NAME", help="The swarm's name.", show_default=False)]
_JobArgument = Annotated[
    str,
    typer.Argument(metavar="JOB", help="The job's id, or the first characters of it.", show_default=False),
]
_BootstrapOption = Annotated[
    list[Address] | None,
    typer.Option(
        "--bootstrap",
        parser=parsed_by(parse_reachable),
        metavar="HOST:PORT",
        help="A bootstrap node's address, for the invites of this swarm; may be given several times.",
        show_default=False,
    ),
]


def parse_expiry(text: str) -> int:
    """A duration in seconds, or 0 for ``never``."""
    return 0 if text.strip().lower() == "never" else parse_duration(text)


@dataclass(frozen=True, kw_only=True)
class CreateOptions(HomeOptions):
    """Make a swarm, and print an invite with all rights for your own machines.

    The invite is the only thing on standard output. Whoever has the swarm's folder is its organiser: keep a
    copy of it. With --public a second invite is printed, which lets strangers contribute.

    Example:
      swarm create lab > lab.invite
    """

    swarm: _SwarmArgument
    public: Annotated[bool, typer.Option("--public", help="Also make an invite for strangers.")] = False
    bootstrap: _BootstrapOption = None
    json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class InviteOptions(HomeOptions):
    """Make an invite to a swarm that was created here, and print it. One invite a person.

    Example:
      swarm invite lab --label Ann --uses 1 --expires 7d --may train > ann.invite
    """

    swarm: _SwarmArgument
    label: Annotated[
        str, typer.Option(metavar="TEXT", help="Whom it is for, as members will show it.", show_default=False)
    ] = ""
    uses: Annotated[
        int, typer.Option(min=0, metavar="N", help="How many peers it lets in; 0 does not count.")
    ] = 0
    expires: Annotated[
        int,
        typer.Option(
            parser=parsed_by(parse_expiry),
            metavar="DURATION",
            help="Until when it lets new peers in, from now (7d, 12h, never); who is in stays in.",
            show_default="7d",
        ),
    ] = WEEK
    may: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RIGHT",
            help="A right beside contribute: train, admit or organise; may be given several times.",
            show_default=False,
        ),
    ] = None
    bootstrap: _BootstrapOption = None
    json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class MembersOptions(HomeOptions):
    """Show who is in a swarm that was created here, and by which invite.

    Invites come from the swarm's folder; peers from the nodes that run on this machine, now and earlier.

    Example:
      swarm members lab
    """

    swarm: _SwarmArgument
    json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class StatusOptions(HomeOptions):
    """Show what a node knows: jobs, stages, members, links, and what happened.

    Without a URL it asks the nodes that run in this home.

    Example:
      swarm status --watch
    """

    url: Annotated[
        str,
        typer.Argument(
            metavar="[URL]", help="Status address of a node, as it was printed there.", show_default=False
        ),
    ] = ""
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which node of this home to ask, if several run.")
    ] = None
    token: Annotated[
        str,
        typer.Option(
            metavar="TOKEN",
            envvar="SWARM_STATUS_TOKEN",
            show_envvar=True,
            help="Token of a status page that is not on loopback.",
            show_default=False,
        ),
    ] = ""
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl+C.")] = False
    json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class JobsOptions(NodeOptions):
    """List the jobs of the swarm.

    Example:
      swarm jobs
    """

    DEFAULT_NAME: ClassVar[str] = "author"

    json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class CancelOptions(NodeOptions):
    """End a job in the whole swarm. Its author may, and organisers.

    Example:
      swarm cancel k3vq
    """

    DEFAULT_NAME: ClassVar[str] = "author"

    job: _JobArgument
    json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class ExportOptions(NodeOptions):
    """Write the trained weights of a job to a safetensors file.

    Example:
      swarm export k3vq -o model.safetensors
    """

    DEFAULT_NAME: ClassVar[str] = "author"

    job: _JobArgument
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE.safetensors",
            help="The file to write; one that is there is replaced.",
            show_default=False,
        ),
    ]
    json: JsonOption = False
