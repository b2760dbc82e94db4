"""The forwarder: a process in a lab's core that gives packets latency, jitter and loss.

``python -m swarm.testing.netlab.forwarder FILE`` reads its ways from FILE (JSON), attaches to the core's
TUN interface, says ``ready`` and forwards until it is killed. The kernel limits rates before packets come
here, so that nothing here depends on their size.

Its limits: one process on one core, some 5 to 15 microseconds a packet. It takes the highest priority that it
can get. What it could not keep up with the interface drops and counts; how late it was, at worst, is in its
report.
"""

import contextlib
import os
import random
import select
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from swarm.clock import elapsed
from swarm.testing.netlab.delays import DelayLines, Way
from swarm.testing.netlab.layout import WAN, Layout
from swarm.testing.netlab.schema import Lab

CAPACITY: Final = 400e6
"""Bits a second, in full packets, all directions together, that it is trusted with (half of what it can)."""
LATE: Final = 0.002
"""Seconds after which a packet counts as late."""
_BATCH: Final = 32
"""Packets read before those that are due are sent: at most half a millisecond's work."""
_LARGEST: Final = 65536
_REPORT_SECONDS: Final = 0.5
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a forwarder is told."""

    ways: Mapping[str, tuple[float, float, float]]
    """By "sender receiver", their sites' numbers: delay, jitter, loss."""
    report: str
    """The file for its reports."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a forwarder has done so far."""

    forwarded: int = 0
    lost: int = 0
    """Packets lost as asked for."""
    late: int = 0
    """Packets that left more than ``LATE`` seconds after they were due."""
    worst: float = 0.0
    """Seconds that the latest of them was late."""


def make_order(lab: Lab, layout: Layout, *, report: Path) -> Order:
    """What the forwarder of this lab is told."""
    ways: dict[str, tuple[float, float, float]] = {}
    for path in lab.paths:
        if path.is_delayed:
            one, other = (layout.sites[site].number for site in path.between)
            ways[f"{one} {other}"] = ways[f"{other} {one}"] = (path.rtt / 2, path.jitter, path.loss)
    return Order(ways=ways, report=str(report))


class Forwarder:
    """Moves packets from the interface ``tun`` to the delay lines and back."""

    def __init__(self, tun: int, lines: DelayLines, report: int) -> None:
        self._tun = tun
        self._lines = lines
        self._report = report
        self._forwarded = 0
        self._late = 0
        self._worst = 0.0
        self._reported = (-1, 0.0)

    def run(self) -> None:
        """Forward until the process ends."""
        while True:
            self._read()
            self._send()
            self._wait()

    def _read(self) -> None:
        tun, lines = self._tun, self._lines
        with contextlib.suppress(BlockingIOError):
            for _ in range(_BATCH):
                packet = os.read(tun, _LARGEST)
                if not lines.take(packet, elapsed()):
                    os.write(tun, packet)
                    self._forwarded += 1

    def _send(self) -> None:
        now = elapsed()
        for due, packet in self._lines.release(now):
            os.write(self._tun, packet)
            self._forwarded += 1
            if now - due > LATE:
                self._late += 1
            self._worst = max(self._worst, now - due)

    def _wait(self) -> None:
        """Until a packet comes or is due; a report that is overdue is written first."""
        now, due = elapsed(), self._lines.due
        count, when = self._reported
        if count != self._forwarded + self._lines.lost and now - when >= _REPORT_SECONDS:
            self._write_report(now)
        pause = None if due is None else max(0.0, due - now)
        if pause is None or pause > _REPORT_SECONDS:
            unreported = self._reported[0] != self._forwarded + self._lines.lost
            pause = _REPORT_SECONDS if unreported else pause
        select.select([self._tun], [], [], pause)

    def _write_report(self, now: float) -> None:
        self._reported = (self._forwarded + self._lines.lost, now)
        report = Report(
            forwarded=self._forwarded, lost=self._lines.lost, late=self._late, worst=round(self._worst, 6)
        )
        # Longer each time or as long, so that no rest of an older one stays behind it.
        os.pwrite(self._report, msgspec.json.encode(report).ljust(200), 0)


def _attach() -> int:
    import fcntl  # noqa: PLC0415 - Linux only, as is this process

    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    request = WAN.encode().ljust(16, b"\0") + (_IFF_TUN | _IFF_NO_PI).to_bytes(2, sys.byteorder) + bytes(14)
    fcntl.ioctl(tun, _TUNSETIFF, request)
    return tun


def _hurry() -> None:
    """Ask for real time, or at least for precedence: packets do not wait for computations."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        with contextlib.suppress(OSError):
            os.nice(-20)


def main(arguments: list[str]) -> None:
    """Forward as the file given says."""
    order = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=Order)
    ways = {
        (int(sender), int(receiver)): Way(delay=delay, jitter=jitter, loss=loss)
        for (sender, receiver), (delay, jitter, loss) in (
            (name.split(), way) for name, way in order.ways.items()
        )
    }
    lines = DelayLines(ways, random.Random())  # noqa: S311 - chance, not secrets
    report = os.open(order.report, os.O_WRONLY | os.O_CREAT, 0o600)
    forwarder = Forwarder(_attach(), lines, report)
    _hurry()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    forwarder.run()


if __name__ == "__main__":
    main(sys.argv[1:])
