"""``python -m swarm.testing.netlab``: labs by hand.

Exit status: 0 success, 1 failure with its cause, 2 misuse with what to do instead; that of its command for
``exec``.
"""

import argparse
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from swarm.errors import MisuseError, UserError
from swarm.testing.netlab import building, state
from swarm.testing.netlab.demo import MEMORY, STEPS, run_demo
from swarm.testing.netlab.description import load_lab, preset_names, preset_text
from swarm.testing.netlab.keeper import end_labs, start_keeper
from swarm.testing.netlab.layout import make_layout
from swarm.testing.netlab.running import RunningLab, find_lab
from swarm.testing.netlab.schema import Lab
from swarm.testing.netlab.telling import status_lines
from swarm.testing.netlab.tools import require
from swarm.testing.netlab.units import parse_duration, parse_rate

UNLIMITED: Final = "unlimited"


class _Parser(argparse.ArgumentParser):
    """Faults of a command line in one line."""

    def error(self, message: str) -> NoReturn:
        raise MisuseError(f"{message}: {self.prog} --help says more")


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit status."""
    try:
        options = _parser().parse_args(arguments)
        status: int | None = options.act(options)
    except UserError as error:
        sys.stderr.write(f"netlab: {error}\n")
        return error.exit_status
    except KeyboardInterrupt:
        return 130
    return status or 0


class _Commands:
    """The commands of a parser, as they are added to it."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)

    def add(self, name: str, act: Callable[[Any], int | None], about: str) -> argparse.ArgumentParser:
        """One more."""
        command = self._commands.add_parser(name, help=about, description=about)
        command.set_defaults(act=act)
        return command

    def add_live(self, name: str, act: Callable[[Any], int | None], about: str) -> argparse.ArgumentParser:
        """One that is for a lab that is up."""
        command = self.add(name, act, about)
        command.add_argument("--lab", help="the lab's name; not needed where one is up")
        return command


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m swarm.testing.netlab", description="A home internet on one Linux machine, as root."
    )
    commands = _Commands(parser)
    up = commands.add("up", _up, "Start a lab; it runs until 'down'.")
    up.add_argument("source", metavar="LAB", help="a TOML file, or a preset")
    up.add_argument("--name", help="run it under another name than its own")
    down = commands.add("down", _down, "End a lab, and clear away those whose owners have died.")
    down.add_argument("lab", nargs="?", metavar="LAB", help="its name; not needed where one is up")
    commands.add("status", _status, "Show the labs that are up, and what their links carried.")
    show = commands.add("show", _show, "Print a lab's TOML, or all that is executed to set it up.")
    show.add_argument("source", metavar="LAB", nargs="?", help="a TOML file, or a preset; none: their names")
    show.add_argument("--scripts", action="store_true", help="the scripts for its namespaces")
    demo = commands.add("demo", _demo, "Train with a peer on each host, and show what each link carried.")
    demo.add_argument("source", metavar="LAB", nargs="?", default="two-clusters")
    demo.add_argument("--steps", type=int, default=STEPS, help="optimizer steps")
    demo.add_argument("--memory", default=MEMORY, help="what each peer offers")
    command = commands.add_live("exec", _exec, "Run a command on a host: exec HOST -- COMMAND.")
    command.add_argument("host", metavar="HOST")
    command.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER)
    _add_faults(commands)
    return parser


def _add_faults(commands: _Commands) -> None:
    cut = commands.add_live("cut", _cut, "Cut the link of a host or site, or the path between two sites.")
    cut.add_argument("part", metavar="NAME")
    cut.add_argument("other", metavar="SITE", nargs="?")
    heal = commands.add_live("heal", _heal, "Undo such a cut; without names, all cuts and partitions.")
    heal.add_argument("part", metavar="NAME", nargs="?")
    heal.add_argument("other", metavar="SITE", nargs="?")
    partition = commands.add_live("partition", _partition, "Cut all paths between groups of sites.")
    partition.add_argument("groups", metavar="SITE,SITE", nargs="+")
    rate = commands.add_live("rate", _rate, "Change the rates of a link, or of the path between two sites.")
    rate.add_argument("part", metavar="NAME")
    rate.add_argument("other", metavar="SITE", nargs="?")
    rate.add_argument("--up", type=_a_rate, help="of a host or site: 8Mbit, or unlimited")
    rate.add_argument("--down", type=_a_rate)
    rate.add_argument("--both", type=_a_rate, help="of a path")
    for name, act, about in (
        ("freeze", RunningLab.freeze, "Stop all processes of a host."),
        ("thaw", RunningLab.thaw, "Let them go on."),
        ("kill", RunningLab.kill, "Kill all processes of a host."),
    ):
        commands.add_live(name, _on_host(act), about).add_argument("host", metavar="HOST")
    clock = commands.add_live("clock", _clock, "Put a host's wall clock ahead of the machine's.")
    clock.add_argument("host", metavar="HOST")
    clock.add_argument("offset", metavar="OFFSET", help="1.5s, 2h, or -- -1d")


def _up(options: Any) -> None:
    lab = load_lab(options.source)
    name = options.name or lab.name
    start_keeper(lab, msgspec.structs.replace(lab, name=name).name)
    _print(f"{name} is up: {', '.join(host.name for host in lab.hosts)}")


def _down(options: Any) -> None:
    _print(f"ended: {', '.join(end_labs(options.lab))}")


def _status(_: Any) -> None:
    require()
    found = state.load_all()
    for one in found:
        if one.owner.is_alive:
            _print("\n".join(status_lines(RunningLab(one.name, one.lab), one.owner.pid)))
        else:
            _print(f"{one.name}: its owner has died; the next 'up' or 'down' clears it away")
    if not found:
        _print("no lab is up")


def _show(options: Any) -> None:
    if options.source is None:
        _print("\n".join(preset_names()))
    elif options.scripts:
        _print(_scripts(load_lab(options.source)))
    elif options.source in preset_names():
        _print(preset_text(options.source))
    else:
        load_lab(options.source)
        _print(Path(options.source).read_text("utf-8"))


def _demo(options: Any) -> int:
    return run_demo(load_lab(options.source), steps=options.steps, memory=options.memory)


def _exec(options: Any) -> NoReturn:
    words = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not words:
        raise MisuseError("there is nothing to execute: write exec HOST -- COMMAND")
    require()
    command, environment = find_lab(options.lab).command(options.host, words)
    os.execvpe(command[0], command, {**os.environ, **environment})  # noqa: S606 - what the user says


def _cut(options: Any) -> None:
    _running(options).cut(options.part, options.other)


def _heal(options: Any) -> None:
    _running(options).heal(options.part, options.other)


def _partition(options: Any) -> None:
    _running(options).partition(*(group.split(",") for group in options.groups))


def _rate(options: Any) -> None:
    lab = _running(options)
    if options.other is None and options.both is None and (options.up or options.down):
        lab.set_rate(options.part, uplink=options.up, downlink=options.down)
    elif options.other is not None and options.both is not None and not (options.up or options.down):
        lab.set_path_rate(options.part, options.other, options.both)
    else:
        raise MisuseError("write rate NAME --up RATE --down RATE, or rate SITE SITE --both RATE")


def _on_host(act: Callable[[RunningLab, str], None]) -> Callable[[Any], None]:
    return lambda options: act(_running(options), options.host)


def _clock(options: Any) -> None:
    _running(options).set_clock(options.host, parse_duration(options.offset))


def _running(options: Any) -> RunningLab:
    require()
    return find_lab(options.lab)


def _a_rate(text: str) -> float:
    try:
        return math.inf if text == UNLIMITED else parse_rate(text)
    except MisuseError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _scripts(lab: Lab) -> str:
    layout = make_layout(lab, name=lab.name)
    parts = [("ip -batch", building.creation(layout)), (layout.core, building.core_script(lab, layout))]
    for site in layout.sites.values():
        parts.append((site.namespace, building.site_script(lab, site)))
        parts += [(host.namespace, building.host_script(lab, site, host)) for host in site.hosts]
    return "\n".join(f"### {where}\n{script}" for where, script in parts)


def _print(text: str) -> None:
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
