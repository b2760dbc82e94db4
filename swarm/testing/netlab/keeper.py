"""A lab that goes on when the command that started it has ended: a process in the background keeps it.

``up`` starts a keeper, gives it the description, and ends once the lab runs. ``down`` asks the keeper to end,
which takes the lab with it.
"""

import os
import select
import signal
import subprocess
import sys
from typing import IO, Final, cast

import msgspec

from swarm.errors import FailureError, MisuseError
from swarm.testing.netlab import state
from swarm.testing.netlab.forwarding import program_environment
from swarm.testing.netlab.reclaiming import reclaim
from swarm.testing.netlab.running import start_lab
from swarm.testing.netlab.schema import Lab
from swarm.testing.netlab.tools import require

END_SECONDS: Final = 30.0
"""From the request to end to the end of a keeper."""
_READY: Final = b"ready\n"


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a keeper is told on its standard input."""

    name: str
    lab: Lab


def start_keeper(lab: Lab, name: str) -> None:
    """Start ``lab`` under ``name`` with a keeper. Raises FailureError with its complaint where that fails."""
    require()
    keeper = subprocess.Popen(  # noqa: S603 - this program itself
        [sys.executable, "-P", "-m", __name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=program_environment(),
        cwd="/",
        start_new_session=True,
    )
    given, said, complaint = cast("tuple[IO[bytes], ...]", (keeper.stdin, keeper.stdout, keeper.stderr))
    with given, said, complaint:
        given.write(msgspec.json.encode(Order(name=name, lab=lab)))
        given.close()
        if said.readline() != _READY:
            words = complaint.read().decode("utf-8", errors="replace").strip()
            status = keeper.wait()
            raise FailureError(words.splitlines()[-1] if words else f"the lab's keeper ended with {status}")


def end_labs(name: str | None) -> list[str]:
    """End the kept lab of that name, or the only one, and clear away all ruins; returns what has ended.

    Raises MisuseError where there is nothing to end, several are meant, or the lab belongs to a program.
    """
    require()
    with state.locked():
        ended = reclaim()
        running = state.load_all()
    meant = [found for found in running if name == found.name or (name is None and found.is_kept)]
    match meant:
        case [] if ended and name in {None, *ended}:
            return ended
        case [one] if one.is_kept:
            _end(one)
            return [*ended, one.name]
        case [one]:
            raise MisuseError(f"{one.name} belongs to process {one.owner.pid}, and ends when that does")
        case []:
            raise MisuseError(f"no lab{f' {name}' if name else ''} is up")
        case _:
            raise MisuseError(
                f"several labs are up: say which, of {', '.join(found.name for found in meant)}"
            )


def _end(kept: state.State) -> None:
    try:
        handle = os.pidfd_open(kept.owner.pid)
    except ProcessLookupError:
        handle = -1
    try:
        # Only now does the id stand for one process, which is the owner or has taken its id since.
        if handle >= 0 and kept.owner.is_alive:
            signal.pidfd_send_signal(handle, signal.SIGTERM)
            if not select.select([handle], [], [], END_SECONDS)[0]:
                raise FailureError(
                    f"the keeper of {kept.name}, process {kept.owner.pid}, does not end: kill it"
                )
    finally:
        if handle >= 0:
            os.close(handle)
    with state.locked():
        reclaim()


def _keep() -> int:
    """The keeper's own life."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=Order)
    ends = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    try:
        with start_lab(order.lab, name=order.name, is_kept=True):
            sys.stdout.buffer.write(_READY)
            sys.stdout.buffer.flush()
            _let_go()
            signal.sigwait(ends)
    except FailureError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    return 0


def _let_go() -> None:
    """Keep nothing of the command that started this open: whoever reads its output waits for its end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(_keep())
