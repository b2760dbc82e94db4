"""``swarm pause`` and ``swarm resume``: whether the peer that runs here gives itself to jobs."""

import asyncio
from typing import Final

import msgspec

from bootstrap.commandline import INTERRUPTED, InterruptedRunError
from bootstrap.output import print_json, say
from bootstrap.running import run
from peer.config import PauseOptions, ResumeOptions
from peer.wording import shown_peer
from swarm.errors import FailureError, MisuseError
from swarm.ids import short
from swarm.schedule.units import format_count
from swarm.services.home import Home, Running, running_nodes
from swarm.services.status.client import StatusClient
from swarm.services.status.document import StatusDocument
from swarm.services.status.source import PauseReport

LOOK_SECONDS: Final = 0.5
"""Between two looks at a peer whose stages are handed over."""


def pause(options: PauseOptions) -> int:
    """Pause the peer, and wait until it holds no stage; returns the exit status."""
    node = _find(options)
    paused: list[PauseReport] = []
    try:
        run(lambda: _pause(options, node, paused))
    except InterruptedRunError:
        if not paused:
            raise
        say("the peer stays paused, and hands over its stages: swarm resume puts it back to work")
        return INTERRUPTED
    return 0


def resume(options: ResumeOptions) -> None:
    """Let the peer work again."""
    node = _find(options)
    report = run(lambda: _resume(node))
    if options.json:
        print_json(msgspec.to_builtins(report))
    else:
        say(f"{_named(report)} gives itself to jobs")


async def _resume(node: Running) -> PauseReport:
    async with StatusClient(node.status_url, token=node.control) as client:
        return await client.resume()


async def _pause(options: PauseOptions, node: Running, paused: list[PauseReport]) -> None:
    """``paused`` is given the first report."""
    async with StatusClient(node.status_url, token=node.control) as client:
        report = await client.pause()
        paused.append(report)
        if options.no_wait:
            told = (
                f"{format_count(report.stages, 'stage')} to hand over" if report.stages else "holds no stages"
            )
        else:
            document = await _handed_over(client, quiet=options.json)
            report = PauseReport.of(document.peer)
            told = f"holds no stages{_coordinated(document)}"
    if options.json:
        print_json(msgspec.to_builtins(report))
    else:
        say(f"{_named(report)} is paused: {told}; swarm resume puts it back to work")


async def _handed_over(client: StatusClient, *, quiet: bool) -> StatusDocument:
    """The peer's status once it holds no stage; unless ``quiet``, how many there still are is said.

    Raises FailureError where the peer is gone, or resumed, before.
    """
    said = 0
    while True:
        document, _ = await client.fetch()
        stages = document.peer.stages
        if document.peer.paused is None:
            raise FailureError(f"the peer was resumed: it holds {format_count(stages, 'stage')}")
        if not stages:
            return document
        if stages != said and not quiet:
            verb = "is" if stages == 1 else "are"
            say(f"{format_count(stages, 'stage')} {verb} being handed over")
        said = stages
        await asyncio.sleep(LOOK_SECONDS)


def _coordinated(document: StatusDocument) -> str:
    """The jobs that a paused peer still has a part in."""
    ended = {"done", "failed", "cancelled"}
    jobs = [job for job in document.jobs if job.coordinator == document.peer.id and job.state not in ended]
    if not jobs:
        return ""
    return f", but coordinates job {', '.join(short(job.id) for job in jobs)}, which waits while it is away"


def _named(report: PauseReport) -> str:
    return f"peer {report.name} ({shown_peer(report.peer)})"


def _find(options: PauseOptions | ResumeOptions) -> Running:
    """The peer that is meant: by its name, else the one in the default home, else the only one that runs."""
    own = Home(options.base, options.name or "peer").running()
    found = [own] if own is not None else []
    if not found and options.name is None:
        found = [node for node in running_nodes(options.base) if node.role == "peer"]
    found = [node for node in found if node.status_url]
    if not found:
        raise FailureError(f"no peer runs in {options.base / (options.name or '')}: swarm peer starts one")
    if len(found) > 1:
        raise MisuseError(f"several peers run here, {', '.join(node.name for node in found)}: give --name")
    return found[0]
