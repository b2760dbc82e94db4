"""Four homes train a job that keeps lines, or one that keeps none, in turns."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from benchmarks.lines.end import Moment, Published, Setting
from benchmarks.lines.wide import Shape, wide_job
from benchmarks.links.lab_end import PORT
from benchmarks.links.lab_ends import LabEnd, members
from swarm.services.training.author import prepare_job
from swarm.testing.netlab.running import RunningLab
from swarm.testing.sizing import memory_of

_PROGRAM = "benchmarks.lines.end"
WARM_UP_STEPS = 10
"""The first ones are left out: rates of links are learned in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A stretch of steps of one job. Times are of ``swarm.clock.elapsed``."""

    moments: tuple[Moment, ...]
    """When each step ended."""
    lines: int
    """Kept in that stretch."""
    sent: int
    """Bytes that all hosts sent meanwhile, read from their interfaces."""

    @property
    def steps(self) -> int:
        """Steps between its ends."""
        return self.moments[-1].step - self.moments[0].step

    @property
    def seconds_a_step(self) -> float:
        """On average."""
        return (self.moments[-1].at - self.moments[0].at) / self.steps


class Homes:
    """A swarm of one peer in each home of a lab."""

    def __init__(self, lab: RunningLab, ends: Mapping[str, LabEnd]) -> None:
        self._lab = lab
        self._ends = ends
        """By PeerId, the author's first."""
        self._author = next(iter(ends.values()))

    def with_lines(self, lines: int) -> Turn:
        """A job from when its first line is kept until so many more are: whole rounds of making and rest."""
        job = self._published("lines")
        coordinator = self._ends[job.coordinator]
        [first] = coordinator.ask("lines", job.job, 1)
        sent = self._sent()
        last = coordinator.ask("lines", job.job, 1 + lines)[lines]
        sent = self._sent() - sent
        return self._ended(job, first["at"], last["at"], lines=lines, sent=sent)

    def without_lines(self, steps: int) -> Turn:
        """A job that keeps none, for so many steps."""
        job = self._published("none")
        [*_, first] = self._author.ask("steps", job.job, WARM_UP_STEPS)
        sent = self._sent()
        [*_, last] = self._author.ask("steps", job.job, WARM_UP_STEPS + steps)
        sent = self._sent() - sent
        return self._ended(job, first["at"], last["at"], lines=0, sent=sent)

    def _published(self, keeps: str) -> Published:
        return msgspec.convert(self._author.ask("publish", keeps), type=Published)

    def _ended(self, job: Published, first: float, last: float, *, lines: int, sent: int) -> Turn:
        """What became of the job between two times; it is ended."""
        moments = msgspec.convert(self._author.ask("steps", job.job, 1), type=list[Moment])
        self._author.ask("cancel", job.job)
        for end in self._ends.values():
            end.ask("idle")
        within = tuple(moment for moment in moments if first <= moment.at <= last)
        return Turn(moments=within, lines=lines, sent=sent)

    def _sent(self) -> int:
        return sum(link.sent for link in self._lab.carried() if link.kind == "host")


@contextlib.contextmanager
def homes(lab: RunningLab, shape: Shape, *, interval: float) -> Iterator[Homes]:
    """A peer on each host, that all are needed to hold a job of ``shape``; lines are ``interval`` apart."""
    hosts = [host.name for host in lab.lab.hosts]
    setting = Setting(
        shape=shape,
        peers=len(hosts),
        memory=memory_of(prepare_job(wide_job(shape)), len(hosts)),
        interval=interval,
    )
    folder = members(lab, hosts, doors=(f"{lab.address(hosts[0])}:{PORT}",))
    with contextlib.ExitStack() as closing:
        kind = msgspec.json.encode(setting).decode()
        first, *others = hosts
        ends: dict[str, LabEnd] = {}
        for group in ([first], others):  # the first is the door
            started = [LabEnd(lab, host, folder / host, kind=kind, program=_PROGRAM) for host in group]
            for end in started:
                closing.callback(end.close)
            ends |= {end.answer(): end for end in started}
        for end in ends.values():
            end.ask("linked")
        yield Homes(lab, ends)
