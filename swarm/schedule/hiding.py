"""What ``deadline`` hides of communication, what it cannot, and what more would cost: for people (D8)."""

from collections.abc import Sequence

from swarm.schedule.deadline import Deadline, busiest, choose
from swarm.schedule.quality import Rung, admitted
from swarm.schedule.units import format_seconds
from swarm.wire.codecs import Quality


def what_hides(
    deadline: Deadline, chosen: Sequence[Rung], quality: Quality, rungs: Sequence[Rung]
) -> tuple[str, ...]:
    """A sentence on whether communication hides; where it does not, with what the next of ``rungs`` would
    bring: of all that there are, from the finest to the coarsest.
    """
    if not deadline.resources:
        alone = deadline.boundaries < 2
        return () if alone else ("no rate between these peers is known yet: nothing is compressed",)
    seconds = busiest(deadline.resources, chosen)
    busy, compute = format_seconds(seconds), format_seconds(deadline.compute)
    if seconds <= deadline.compute:
        return (f"communication hides: {busy} of a micro-batch on the busiest link, {compute} of computing",)
    left = format_seconds(seconds - deadline.compute)
    line = f"at quality {quality} a micro-batch takes {busy} on the busiest link and {compute} of computing"
    return (f"{line}, so {left} do not hide; {_next(deadline, seconds, quality, rungs)}",)


def _next(deadline: Deadline, seconds: float, quality: Quality, rungs: Sequence[Rung]) -> str:
    """What the finest codec would bring that ``quality`` does not admit, and cost."""
    for count in range(len(admitted(rungs, quality)) + 1, len(rungs) + 1):
        next_rung = rungs[count - 1]
        less = busiest(deadline.resources, choose(deadline, rungs[:count]))
        if less < seconds:
            return (
                f"{next_rung.codec}, of quality {next_rung.quality}, would bring that to "
                f"{format_seconds(less)}, and the published table shows "
                f"{next_rung.distortion:.1%} more loss"
            )
    return "no coarser codec has a row in the published table that would help"
