"""A stage's snapshot fetched from three donors on a network of netlab, beside the receiver's downlink.

Takes root on Linux. One donor leaves on the way and one sends wrong bytes; then the receiver is killed on the
way and started again, with honest donors of whom one is slow.
"""

import sys
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from benchmarks.common import Row, Table, Target, Versions
from benchmarks.transfers import scenario
from bootstrap.commandline import run_program, single_command
from swarm.errors import FailureError
from swarm.testing.netlab.running import start_lab
from swarm.testing.netlab.tools import missing
from swarm.wire.limits import MIB

LEAVES_AT: Final = 0.3
KILLED_AT: Final = 0.5
GOODPUT_TARGET: Final = Target(least=0.8)
LACKED_TARGET: Final = Target(most=1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferOptions:
    """Measure how fast a stage's snapshot comes from several peers. Takes root on Linux.

    Example: sudo python benchmarks/transfer.py --check
    """

    megabytes: Annotated[int, typer.Option(help="MiB of the snapshot.", min=4)] = 200
    down: Annotated[int, typer.Option(help="Mbit/s of the receiver's downlink.", min=1)] = 100
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a target is missed.")] = False


def measure(options: TransferOptions) -> Table:
    """All rows. Raises FailureError where this machine cannot run labs."""
    line = missing()
    if line is not None:
        raise FailureError(line)
    return Table(
        title="A stage's snapshot from several donors, beside the receiver's downlink and what it lacked",
        first="found",
        second="beside it",
        rows=[_troubled(options), *_resumed(options)],
        versions=Versions.here("cryptography", "msgspec"),
        remarks=[f"a snapshot of {options.megabytes} MiB, payload and nothing else counted"],
    )


def _rate(megabits: float) -> str:
    return f"{megabits:g}Mbit"


def _troubled(options: TransferOptions) -> Row:
    down = options.down
    donors = {"stays": 1.5 * down, "leaves": 0.75 * down, "lies": 0.75 * down}
    lab = scenario.make_lab(_rate(down), {donor: _rate(up) for donor, up in donors.items()})
    kinds = {"stays": "donor", "leaves": "donor", "lies": "liar"}
    with start_lab(lab) as running, scenario.ends(running, kinds, size=options.megabytes * MIB) as ends:
        ends.begin()
        ends.wait(LEAVES_AT)
        ends.donors["leaves"].close()
        found = ends.finish()
        if not any(told.startswith(f"peer {ends.peers['lies'][:8]} sent other") for told in found.trouble):
            raise FailureError(f"the liar was not named, only: {'; '.join(found.trouble) or 'nothing'}")
    goodput = ends.size * 8 / found.seconds / 1e6
    return Row(
        what="three donors: one leaves, one lies",
        first=goodput,
        second=down,
        unit="Mbit/s",
        ratio=goodput / down,
        target=GOODPUT_TARGET,
    )


def _resumed(options: TransferOptions) -> list[Row]:
    donors = {"fast": options.down / 2, "slow": options.down / 10}
    lab = scenario.make_lab(_rate(options.down), {donor: _rate(up) for donor, up in donors.items()})
    kinds = dict.fromkeys(donors, "donor")
    with start_lab(lab) as running, scenario.ends(running, kinds, size=options.megabytes * MIB) as ends:
        ends.begin()
        ends.wait(KILLED_AT)
        with scenario.started_again(ends) as again:
            again.begin()
            found = again.finish()
    lacked, came = ends.size - found.before, sum(found.given.values())
    fast, slow = (found.given.get(ends.peers[donor], 0) for donor in donors)
    return [
        Row(
            what="bytes that come after a kill, beside those lacked",
            first=came / MIB,
            second=lacked / MIB,
            unit="MiB",
            ratio=came / lacked,
            target=LACKED_TARGET,
        ),
        Row(
            what="a donor with five times the uplink, beside the other",
            first=fast / MIB,
            second=slow / MIB,
            unit="MiB",
            ratio=fast / max(slow, 1),
        ),
    ]


def main(options: TransferOptions) -> int:
    """Measure and print; returns the exit status."""
    return measure(options).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(run_program(single_command("transfer", TransferOptions, main), "transfer", sys.argv[1:]))
