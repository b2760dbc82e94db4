"""A stage's snapshot on its way from several donors to a receiver, in a lab."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.links.lab_end import PORT
from benchmarks.links.lab_ends import LabEnd, members
from benchmarks.transfers.end import TENSOR_BYTES, Fetched
from swarm.testing.netlab.description import parse_lab
from swarm.testing.netlab.running import RunningLab
from swarm.testing.netlab.schema import Lab

RECEIVER: Final = "r"
_PROGRAM: Final = "benchmarks.transfers.end"


def make_lab(down: str, up: Mapping[str, str]) -> Lab:
    """A receiver with a downlink of ``down``, and donors by name with their uplinks, each at a site."""
    links = {RECEIVER: f'downlink = "{down}"', **{donor: f'uplink = "{rate}"' for donor, rate in up.items()}}
    hosts = [
        f'[[site]]\nname = "at-{host}"\n[[host]]\nname = "{host}"\nsite = "at-{host}"\n{link}\n'
        for host, link in links.items()
    ]
    return parse_lab('name = "transfer"\n' + "".join(hosts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The programs of a lab: a receiver, and donors, each with its PeerId."""

    lab: RunningLab
    folder: Path
    receiver: LabEnd
    donors: Mapping[str, LabEnd]
    peers: Mapping[str, str]
    size: int
    blobs: str
    """The snapshot, as JSON."""

    def begin(self) -> None:
        """Let the receiver fetch the snapshot."""
        self.receiver.ask("fetch", self.blobs)

    def wait(self, share: float) -> int:
        """Return once it has this share of it; the bytes that it has."""
        found: int = self.receiver.ask("reach", int(share * self.size))
        return found

    def finish(self) -> Fetched:
        """Wait for the end of the transfer."""
        return msgspec.convert(self.receiver.ask("fetched"), type=Fetched)


@contextlib.contextmanager
def ends(lab: RunningLab, donors: Mapping[str, str], *, size: int) -> Iterator[Ends]:
    """Donors by name and kind that have a snapshot of about ``size`` bytes, and a receiver that has not."""
    size = max(size // TENSOR_BYTES, 1) * TENSOR_BYTES
    folder = members(lab, [RECEIVER, *donors], doors=(f"{lab.address(RECEIVER)}:{PORT}",))
    with contextlib.ExitStack() as closing:
        started = {}
        peers = {}
        for host, kind in {RECEIVER: "receiver", **donors}.items():
            started[host] = LabEnd(lab, host, folder / host, kind=kind, program=_PROGRAM)
            closing.callback(started[host].close)
            peers[host] = started[host].answer()
        made = [started[host].ask("make", size) for host in donors]
        receiver = started.pop(RECEIVER)
        receiver.ask("linked", len(donors))
        yield Ends(
            lab=lab,
            folder=folder,
            receiver=receiver,
            donors=started,
            peers=peers,
            size=size,
            blobs=msgspec.json.encode(made[0]).decode(),
        )


@contextlib.contextmanager
def started_again(before: Ends) -> Iterator[Ends]:
    """The same after the receiver was killed: another one in its home."""
    before.receiver.close()
    receiver = LabEnd(before.lab, RECEIVER, before.folder / RECEIVER, kind="receiver", program=_PROGRAM)
    with contextlib.closing(receiver):
        receiver.answer()
        receiver.ask("linked", len(before.donors))
        yield Ends(
            lab=before.lab,
            folder=before.folder,
            receiver=receiver,
            donors=before.donors,
            peers=before.peers,
            size=before.size,
            blobs=before.blobs,
        )
