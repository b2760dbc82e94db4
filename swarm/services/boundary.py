"""The boundary around one job's work: what goes wrong inside ends that job here, and nothing else.

A manifest, its graphs and its plans come from other people, and what they make our code do cannot all be
foreseen. So a fault in the work for one job, a bug of ours included, ends that job and not the node: it is
logged with its traceback and becomes one sentence (docs/decisions/0007).
"""

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from swarm.errors import RemoteError, UserError
from swarm.ids import JobId, short
from swarm.log import get_log
from swarm.wire.messages.base import Message
from swarm.wire.text import printable

_log = get_log(__name__)


@contextmanager
def job_boundary(
    job: JobId, fail: Callable[[str], None], *, passes: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Tell ``fail`` in one sentence what the work inside raised, instead of raising it.

    What is of ``passes``, and cancellation, passes through: a message that breaks the protocol is charged to
    its sender. ``fail`` must not raise.
    """
    try:
        yield
    except passes:
        raise
    except (UserError, RemoteError) as error:
        fail(printable(str(error)))
    except Exception as fault:  # noqa: BLE001 - the boundary of a job
        trace = "".join(traceback.format_exception(fault))
        _log.error("a fault in the work for a job", job=short(job), trace=trace)
        fail(printable(f"a fault in this program, see its log: {type(fault).__name__}: {fault}"))


def job_of(message: Message) -> JobId | None:
    """The job that ``message`` is about, where it says so outside of anything signed."""
    fence = getattr(message, "fence", None)
    job = getattr(message if fence is None else fence, "job", None)
    return None if job is None else JobId(job)
