"""The options of every command, each a dataclass; the text of an option is its ``help``.

Values are checked as they are read (``bootstrap.values``); what is wrong is said in one line that names the
option.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Final

import typer

from bootstrap.commandline import parsed_by
from bootstrap.options import HomeOptions, JsonOption, NodeOptions, ServingOptions
from bootstrap.values import parse_duration, parse_rate, parse_reachable, parse_size
from swarm.errors import MisuseError
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
CompileOption = Annotated[
    bool,
    typer.Option(
        "--compile",
        help="Train stages through torch.compile: slow to begin, then faster; the last bits may differ.",
    ),
]


def parse_expiry(text: str) -> int:
    """A duration in seconds, or 0 for ``never``; none at all is not taken for that."""
    if text.strip().lower() == "never":
        return 0
    seconds = parse_duration(text)
    if not seconds:
        raise MisuseError(f"{text!r} from now would let nobody in: write 7d, 12h, 30m or never")
    return seconds


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
class RevokeOptions(HomeOptions):
    """Put a peer, or everybody who came by an invite, out of a swarm that was created here, for good.

    A peer's invite is revoked with it, or else its holder could return under a new key. All links with the
    revoked end within seconds; nodes that are away hear of it when they come back.

    Example:
      swarm revoke lab k3vq
    """

    swarm: _SwarmArgument
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="A peer or an invite, as swarm members shows it, or the first characters of it.",
            show_default=False,
        ),
    ]
    peer_only: Annotated[
        bool,
        typer.Option("--peer-only", help="Leave the peer's invite as it is; others may have come by it."),
    ] = False
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
    only_trained: Annotated[
        bool,
        typer.Option(
            "--only-trained",
            help="Leave out what training did not change, as the frozen part of a model under adapters.",
        ),
    ] = False
    ema: Annotated[
        bool,
        typer.Option("--ema", help="Write the average of the weights, of a job that keeps one."),
    ] = False
    json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class PeerOptions(ServingOptions):
    """Run a peer: give this machine's compute to the jobs of a swarm, within limits.

    Ctrl+C announces it, drains, and ends within five seconds: some of them are for others to take over its
    stages. swarm pause gives them as long as that takes.

    Example:
      swarm peer --invite lab.invite --memory 6GiB
    """

    device: Annotated[
        str,
        typer.Option(
            metavar="DEVICE",
            help="Where to compute: cpu, cuda, cuda:1, xpu, mps; by default cuda if there is one.",
            show_default=False,
        ),
    ] = ""
    memory: Annotated[
        int | None,
        typer.Option(
            parser=parsed_by(parse_size),
            metavar="SIZE",
            help="Memory of the device for stages (6GiB); by default half of what is free at the start.",
            show_default=False,
        ),
    ] = None
    up: Annotated[
        int,
        typer.Option(
            parser=parsed_by(parse_rate),
            metavar="RATE",
            help="The most that all links together send (20Mbit, 2.5MB/s); 0 does not limit.",
            show_default="0",
        ),
    ] = 0
    down: Annotated[
        int,
        typer.Option(
            parser=parsed_by(parse_rate),
            metavar="RATE",
            help="The most that all links together receive; 0 does not limit.",
            show_default="0",
        ),
    ] = 0
    jobs: Annotated[
        str,
        typer.Option(
            metavar="any|mine|JOB",
            help="Which jobs to work for: any, mine (published from this home folder), or one by its id.",
        ),
    ] = "any"
    compile: CompileOption = False


@dataclass(frozen=True, kw_only=True)
class _LocalPeerOptions(HomeOptions):
    """What commands to a peer that runs here take."""

    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Which peer of this home, if several run.", show_default=False),
    ] = None
    json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class PauseOptions(_LocalPeerOptions):
    """Let the peer that runs here give itself to no job, until swarm resume or until its program ends.

    It stays in the swarm. Others take over its stages one by one, where they have room, and the work goes on
    meanwhile; the command ends once the peer holds none. Started again, a peer works.

    Example:
      swarm pause
    """

    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Do not wait until others have taken over its stages.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class ResumeOptions(_LocalPeerOptions):
    """Let a paused peer give itself to jobs again.

    Example:
      swarm resume
    """


@dataclass(frozen=True, kw_only=True)
class TrainOptions(NodeOptions):
    """Train the model in FILE.py on the swarm, and follow it.

    FILE.py makes a TrainingJob and calls it job. With --detach the command ends as soon as other peers have
    everything that the job needs; swarm status, jobs and export then find it by its id.

    Example:
      swarm train gpt.py --invite lab.invite --steps 200
    """

    DEFAULT_NAME: ClassVar[str] = "author"

    file: Annotated[
        Path, typer.Argument(metavar="FILE.py", help="Python file with the job.", show_default=False)
    ]
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Optimizer steps, instead of what the file says.", show_default=False
        ),
    ] = None
    detach: Annotated[
        bool, typer.Option("--detach", help="End once the job can go on without this process.")
    ] = False
    json: JsonOption = False
