"""What the person at the keyboard sees while a node runs: a live view on a terminal, else log lines.

Both are fed the node's status document a few times a second; neither knows anything else.
"""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from peer.render import render_events, render_job, render_paused, render_waiting
from peer.wording import clean, shown_span
from swarm.clock import SystemClock
from swarm.ids import short
from swarm.log import get_log
from swarm.services.auxiliary import run_auxiliary
from swarm.services.status.document import JobStatus, StatusDocument
from swarm.services.status.source import StatusSource
from swarm.wire.messages.jobs import JobState

UPDATE_SECONDS: Final = 0.5
"""Between two looks at the node."""
LOG_SECONDS: Final = 5.0
"""Least time between two progress lines of one job in a log."""
LIVE_EVENTS: Final = 5
"""Events under the live view; all of them are on the status page."""

_ENDED: Final = frozenset({"done", "failed", "cancelled"})

log = get_log(__name__)


class View(Protocol):
    """Shows a node; a context that owns the terminal while it is entered."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def update(self, document: StatusDocument, now: float) -> None:
        """Show this state of the node; ``now`` in wall seconds."""
        ...


@contextlib.asynccontextmanager
async def follow(source: StatusSource, status_url: str) -> AsyncIterator[None]:
    """Show ``source`` on standard error while the context lasts.

    The view is an auxiliary service: a bug in it is logged, and the work inside goes on.
    """
    clock = SystemClock()
    with make_view(status_url) as view:

        async def show() -> None:
            while True:
                view.update(source.status(), clock.wall())
                await asyncio.sleep(UPDATE_SECONDS)

        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(run_auxiliary("view", show, clock=clock), name="view")
            try:
                yield
            finally:
                task.cancel()


def make_view(status_url: str) -> View:
    """The view that fits standard error."""
    console = Console(stderr=True)
    return LiveView(console, status_url) if console.is_terminal else LineView()


class LiveView:
    """Step, loss, tokens a second, time to go and a line per stage, redrawn in place; logs scroll above."""

    def __init__(self, console: Console, status_url: str) -> None:
        self._status_url = status_url
        # A refresh thread would be a third execution context; update() redraws.
        self._live = Live(console=console, auto_refresh=False, transient=False)
        self._redirected: list[logging.StreamHandler[Any]] = []

    def __enter__(self) -> Self:
        before = sys.stderr
        self._live.start()
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is before:
                handler.setStream(sys.stderr)
                self._redirected.append(handler)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()
        for handler in self._redirected:
            handler.setStream(sys.stderr)
        self._redirected.clear()

    def update(self, document: StatusDocument, now: float) -> None:
        """Redraw."""
        self._live.update(self._draw(document, now), refresh=True)

    def _draw(self, document: StatusDocument, now: float) -> Group:
        peer = document.peer
        linked = sum(member.linked for member in document.members)
        head = Text.assemble(
            ("swarm ", "dim"),
            (clean(document.swarm.name), "bold"),
            f"  {peer.role} {clean(peer.name)} ({short(peer.id)}), {linked} linked",
            render_paused(peer),
            (f"  {self._status_url}", "dim"),
        )
        parts: list[RenderableType] = [head]
        if document.waiting is not None:
            parts.append(render_waiting(document.waiting, now))
        parts += [render_job(job, now) for job in document.jobs if job.state not in _ENDED]
        parts.append(render_events(document.events[-LIVE_EVENTS:]))
        return Group(*parts)


class LineView:
    """Log lines: one whenever a job's state or sentence changes, and one now and again while it trains.

    Of jobs that had ended before, nothing is said: a peer that joins hears of all that the swarm remembers.
    """

    def __init__(self) -> None:
        self._began: float | None = None
        self._states: dict[str, tuple[JobState, str]] = {}
        self._logged: dict[str, float] = {}
        self._validated: dict[str, int] = {}
        self._waiting = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def update(self, document: StatusDocument, now: float) -> None:
        """Log what is new."""
        if self._began is None:
            self._began = now
        waiting = document.waiting
        reason = waiting.reason if waiting is not None and not waiting.job else ""
        if reason and reason != self._waiting:
            log.info("waiting", reason=clean(reason))
        self._waiting = reason
        for job in document.jobs:
            if self._states.get(job.id) != (job.state, job.sentence):
                if job.id in self._states or job.state not in _ENDED or job.since >= self._began:
                    log.info("job", **_named(job), state=job.state, **_told(job))
                self._states[job.id] = (job.state, job.sentence)
            elif job.state == "training" and now - self._logged.get(job.id, 0.0) >= LOG_SECONDS:
                self._logged[job.id] = now
                log.info("training", **_named(job), **_progress(job))
            for point in job.validations:
                if job.state not in _ENDED and point.step > self._validated.get(job.id, 0):
                    self._validated[job.id] = point.step
                    metric = {} if point.metric is None else {"metric": point.metric}
                    log.info("validated", **_named(job), step=point.step, held_out=point.loss, **metric)
        known = {job.id for job in document.jobs}
        self._states = {job: state for job, state in self._states.items() if job in known}
        self._logged = {job: moment for job, moment in self._logged.items() if job in known}
        self._validated = {job: step for job, step in self._validated.items() if job in known}


def _named(job: JobStatus) -> dict[str, str]:
    return {"job": short(job.id), "name": clean(job.name)}


def _told(job: JobStatus) -> dict[str, str]:
    return {"because": clean(job.sentence)} if job.sentence else {}


def _progress(job: JobStatus) -> dict[str, str | float]:
    fields: dict[str, str | float] = {"step": f"{job.step}/{job.steps}"}
    if job.loss is not None:
        fields["loss"] = job.loss
    if job.tokens_per_second is not None:
        fields["tokens_per_second"] = round(job.tokens_per_second)
    if job.eta is not None:
        fields["eta"] = shown_span(job.eta)
    return fields
