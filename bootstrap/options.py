"""The options that commands share, and what they mean together."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Final

import typer

from bootstrap.commandline import parsed_by
from bootstrap.place import home_base
from bootstrap.values import DEFAULT_PORT, parse_address, parse_reachable, parse_size
from swarm.net.address import Address

if TYPE_CHECKING:
    from swarm.services.home import Home
    from swarm.services.networks import Networks

EVERY_INTERFACE: Final = Address("", DEFAULT_PORT)
LOOPBACK: Final = Address("127.0.0.1", 0)
DEFAULT_DISK: Final = 20 * 2**30
"""Bytes of disk for blocks: a few models and datasets of the size that home links can carry."""

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on standard output, and nothing else there.")
]


def _parse_status_address(text: str) -> Address:
    return parse_address(text, default_port=0)


DebugOption = Annotated[
    bool, typer.Option("--debug", help="Log more, and show the traceback of an internal error.")
]


@dataclass(frozen=True, kw_only=True)
class HomeOptions:
    """What every command takes."""

    home: Annotated[
        Path | None,
        typer.Option(
            envvar="SWARM_HOME",
            metavar="FOLDER",
            help="Where all state is kept; by default the system's place for a user's data.",
            show_envvar=True,
        ),
    ] = None
    debug: DebugOption = False

    @property
    def base(self) -> Path:
        """The folder with all homes."""
        return home_base(self.home)


@dataclass(frozen=True, kw_only=True)
class NodeOptions(HomeOptions):
    """What a command that runs a node takes."""

    DEFAULT_NAME: ClassVar[str] = "peer"

    invite: Annotated[
        str | None,
        typer.Option(
            metavar="INVITE",
            help="The invite: the string itself, a file with it, or - for standard input. "
            "Not needed after the first time.",
            show_default=False,
        ),
    ] = None
    name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Folder of this node below the home: several nodes on one machine need one each.",
        ),
    ] = None

    disk: Annotated[
        int,
        typer.Option(
            parser=parsed_by(parse_size),
            metavar="SIZE",
            help="Disk for models, data and weights in the home (500MB, 20GiB).",
            show_default="20GiB",
        ),
    ] = DEFAULT_DISK

    mdns: Annotated[
        bool,
        typer.Option(
            "--mdns/--no-mdns",
            envvar="SWARM_MDNS",
            help="Find peers of the swarm in the local network by multicast DNS, and be found.",
        ),
    ] = True

    def networks(self, listen: Address) -> "Networks":
        """The networks of a node on ``listen``; neighbours are looked for where they could reach it."""
        from swarm.net.interfaces import is_loopback  # noqa: PLC0415 - not needed for --help
        from swarm.services.networks import Networks  # noqa: PLC0415

        if not self.mdns or is_loopback(listen.host):
            return Networks()
        from swarm.net.multicast import Multicast  # noqa: PLC0415 - costs memory

        return Networks(neighbours=Multicast())

    @property
    def node_home(self) -> "Home":
        """The home of this node; raises MisuseError for a name that is none."""
        from swarm.services.home import Home  # noqa: PLC0415 - not needed for --help

        return Home(self.base, self.name or self.DEFAULT_NAME)


@dataclass(frozen=True, kw_only=True)
class ServingOptions(NodeOptions):
    """What a long-running node takes besides."""

    listen: Annotated[
        Address,
        typer.Option(
            parser=parsed_by(parse_address),
            metavar="HOST:PORT",
            help="Where others reach this peer, TCP and UDP. No host: every interface. Port 0: a free one.",
        ),
    ] = EVERY_INTERFACE
    advertise: Annotated[
        list[Address] | None,
        typer.Option(
            parser=parsed_by(parse_reachable),
            metavar="HOST:PORT",
            help="The address to tell others, where it differs from --listen; may be given several times.",
            show_default=False,
        ),
    ] = None
    status: Annotated[
        Address,
        typer.Option(
            parser=parsed_by(_parse_status_address),
            metavar="HOST:PORT",
            help="Where the status page is served. Not on loopback, it needs the token that is printed.",
        ),
    ] = LOOPBACK
    parent: Annotated[
        int | None, typer.Option(hidden=True, metavar="PID", help="End when this process has ended.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class BootstrapOptions(ServingOptions):
    """Run a bootstrap node, and print the invite with its address in it.

    A bootstrap node needs no torch: it is the door by which newcomers enter, and the seed of discovery.

    Example:
      swarm bootstrap --invite lab.invite --advertise swarm.example.org:7423
    """

    DEFAULT_NAME: ClassVar[str] = "bootstrap"

    json: JsonOption = False
