"""What is measured of links on shaped networks; each function does it once."""

import contextlib
import os
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.links.lab_ends import LabEnd
from swarm.clock import elapsed
from swarm.errors import FailureError
from swarm.protocol.session_meters import HEARTBEAT_SECONDS, MISSED_HEARTBEATS
from swarm.testing.netlab.counters import since
from swarm.testing.netlab.description import parse_lab
from swarm.testing.netlab.iperf import Iperf
from swarm.testing.netlab.running import RunningLab, start_lab
from swarm.testing.netlab.schema import Lab

HOSTS: Final = ("a", "b", "c")
"""One in each site."""
IPERF_PORT: Final = 5201
NOTICED_SECONDS: Final = MISSED_HEARTBEATS * HEARTBEAT_SECONDS
"""Within this a cut link is noticed."""
IDLE_ROUND_TRIPS: Final = 3
BESIDE_BULK_SECONDS: Final = 0.1
"""A round trip beside bulk takes at most so many idle ones, and this (DESIGN section 6)."""
_PATIENCE_SECONDS: Final = 60.0
"""For what must happen in an outage."""
_WARM_UP_SECONDS: Final = 2.0
"""Of senders whose bytes are counted: buffers fill, and caps make idle time good."""


def make_lab(rate: str, *, queue: str = "100ms", rtt: str = "") -> Lab:
    """Three hosts with links of ``rate`` both ways; ``rtt`` is that of the path between the first two."""
    sites = "".join(
        f'[[site]]\nname = "site-{host}"\n'
        f'[[host]]\nname = "{host}"\nsite = "site-{host}"\nuplink = "{rate}"\ndownlink = "{rate}"\n'
        for host in HOSTS
    )
    path = f'[[path]]\nbetween = ["site-a", "site-b"]\nrtt = "{rtt}"\n' if rtt else ""
    return parse_lab(f'name = "shaped"\nqueue = "{queue}"\n{sites}{path}')


@contextlib.contextmanager
def shaped_lab(rate: str, *, queue: str = "100ms", rtt: str = "") -> Iterator[RunningLab]:
    """Such a lab, of this process alone."""
    with start_lab(make_lab(rate, queue=queue, rtt=rtt), name=f"shaped-{os.getpid()}") as lab:
        yield lab


def iperf_goodput(lab: RunningLab, sender: str, receiver: str, *, seconds: int) -> float:
    """Bits a second of payload that iperf3 carries, after the first second."""
    transfer = Iperf(lab, sender, receiver, port=IPERF_PORT, seconds=seconds)
    try:
        return transfer.rate()
    finally:
        transfer.close()


def iperf_both_ways(lab: RunningLab, *, seconds: int) -> float:
    """Bits a second of payload that iperf3 carries both ways at once between two hosts: the slower way."""
    with contextlib.ExitStack() as closing:
        transfers = []
        for number, (sender, receiver) in enumerate((HOSTS[:2], HOSTS[1::-1])):
            transfer = Iperf(lab, sender, receiver, port=IPERF_PORT + number, seconds=seconds)
            closing.callback(transfer.close)
            transfers.append(transfer)
        return min(transfer.rate() for transfer in transfers)


def link_both_ways(ends: Sequence[LabEnd], *, seconds: int) -> float:
    """Bits a second of payload that a link of two ``ends`` carries both ways at once: the slower way."""
    for end in ends:
        end.ask("stream")
    for end in ends:
        end.tell("goodput", seconds)
    slower: float = min(end.answer() for end in ends)
    for end in ends:
        end.ask("rest")
    ends[0].ask("ask", 1, 0)  # what is under way has arrived
    return slower


def link_goodput(sender: LabEnd, receiver: LabEnd, *, seconds: int) -> float:
    """Bits a second of payload that links of ``sender`` carry to ``receiver``, after the first second."""
    receiver.tell("goodput", seconds)
    sender.ask("stream")
    goodput: float = receiver.answer()
    sender.ask("rest")
    sender.ask("ask", 1, 0)  # what is under way has arrived
    return goodput


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundTrips:
    """Seconds that small requests take to be answered."""

    idle: Sequence[float]
    beside: Sequence[float]
    """While payloads are sent without a break."""

    @property
    def bound(self) -> float:
        """What those beside bulk may take."""
        return IDLE_ROUND_TRIPS * statistics.median(self.idle) + BESIDE_BULK_SECONDS


def round_trips(sender: LabEnd, receiver: LabEnd, *, times: int) -> RoundTrips:
    """Round trips from ``sender``, idle and beside its bulk, once that has flowed for a second."""
    idle = sender.ask("ask", 20, 0.02)
    receiver.tell("goodput", 0)
    sender.ask("stream")
    receiver.answer()
    beside = sender.ask("ask", times, 0.05)
    sender.ask("rest")
    sender.ask("ask", 1, 0)
    return RoundTrips(idle=idle, beside=beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Bytes a second: on the sender's link, headers included, and of payload to each who pulled."""

    on_the_link: float
    to_each: Sequence[float]


def sent_by_first(lab: RunningLab, ends: Sequence[LabEnd], *, seconds: int) -> Shares:
    """What the first of ``ends`` sends to all others at once."""
    first, *others = ends
    first.ask("stream")
    first.ask("wait", _WARM_UP_SECONDS)
    before, began = lab.carried(), elapsed()
    for other in others:
        other.tell("goodput", seconds)
    rates = [other.answer() / 8 for other in others]
    after, ended = lab.carried(), elapsed()
    first.ask("rest")
    [link] = [one for one in since(after, before) if (one.kind, one.name) == ("host", first.host)]
    return Shares(on_the_link=link.sent / (ended - began), to_each=rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outage:
    """Seconds until both ends knew that their link was cut; until both had one again once it was healed."""

    noticed: float
    healed: float


def outage(lab: RunningLab, ends: Sequence[LabEnd], *, seconds: float) -> Outage:
    """Cut the path between the two nodes ``ends``, and heal it so long after both have noticed."""
    sites = [f"site-{end.host}" for end in ends]
    numbers = [end.ask("happened") for end in ends]
    lab.cut(*sites)
    cut = elapsed()
    noticed = _when(ends, numbers, "down") - cut
    ends[0].ask("wait", seconds)
    numbers = [end.ask("happened") for end in ends]
    lab.heal(*sites)
    healed = elapsed()
    return Outage(noticed=noticed, healed=_when(ends, numbers, "up") - healed)


def _when(ends: Sequence[LabEnd], numbers: Sequence[int], what: str) -> float:
    """When that had happened at all ends."""
    happenings = [
        end.ask("happening", number, _PATIENCE_SECONDS) for end, number in zip(ends, numbers, strict=True)
    ]
    if any(happening["what"] != what for happening in happenings):
        raise FailureError(f"links should have gone {what}: {happenings}")
    return max(float(happening["at"]) for happening in happenings)
