"""``swarm jobs``, ``cancel`` and ``export``: through a node that runs in this home, or one of their own.

A node that runs here already knows the swarm, so it is asked over its status endpoint. Where none does, a
node starts in this process for as long as the command takes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec
from rich.table import Table
from rich.text import Text

from bootstrap.hosting import Hosted, run_node
from bootstrap.node import NOTHING
from bootstrap.options import NodeOptions
from bootstrap.output import print_json, say
from bootstrap.running import run
from peer.config import CancelOptions, ExportOptions, JobsOptions
from peer.nearest import nearest
from peer.tables import make_console, make_table
from peer.training_part import require_training_part, writable_file
from peer.wording import clean, shown_number, shown_span
from swarm.clock import SystemClock, wall
from swarm.errors import FailureError, MisuseError
from swarm.identity.invite import Invite, read_invite
from swarm.identity.membership import STATE_FILE, Identity
from swarm.ids import short
from swarm.net.address import Address
from swarm.schedule.units import format_bytes
from swarm.services.home import Home, Running, running_nodes
from swarm.services.node import Node, NodeConfig
from swarm.services.status.client import StatusClient
from swarm.services.status.document import JobStatus, StatusDocument
from swarm.services.status.source import CancelReport, ExportReport, Selection

ANY_PORT: Final = Address("", 0)
"""A command's own node takes whatever port is free: others need not find it."""

HEAR_SECONDS: Final = 1.5
"""How long a node that has just joined listens for jobs, at least."""
COORDINATOR_SECONDS: Final = 6.0
"""And at most, while there is no link to a coordinator that knows where its job stands."""

_Result = TypeVar("_Result")


class _Swarm(Protocol):
    """What the commands ask of a node, near or in this process."""

    async def documents(self) -> StatusDocument: ...

    async def cancel(self, job: str) -> CancelReport: ...

    async def export(self, job: str, path: Path, selection: Selection) -> ExportReport: ...


def jobs(options: JobsOptions) -> None:
    """List the jobs."""
    document = _with_swarm(options, lambda swarm: swarm.documents())
    if options.json:
        print_json({"jobs": msgspec.to_builtins(document.jobs)})
    elif document.jobs:
        console = make_console()
        console.print(_table(document.jobs))
        for job in document.jobs:
            if job.sentence and job.state != "done":
                limit = "" if job.until is None else f", gives up in {shown_span(job.until - wall())}"
                console.print(Text(f"{short(job.id)}  {clean(job.sentence)}{limit}"))
    else:
        say(f"swarm {document.swarm.name} has no jobs")


def cancel(options: CancelOptions) -> None:
    """End a job."""
    report = _with_swarm(options, lambda swarm: swarm.cancel(options.job))
    if options.json:
        print_json(msgspec.to_builtins(report))
    else:
        say(f"job {short(report.job)} is cancelled")


def export(options: ExportOptions) -> None:
    """Write a job's weights to a file."""
    require_training_part()
    path = writable_file(options.output)
    selection = Selection(only_trained=options.only_trained, ema=options.ema)
    report = _with_swarm(options, lambda swarm: swarm.export(options.job, path, selection))
    if options.json:
        print_json(msgspec.to_builtins(report))
    else:
        size = format_bytes(report.bytes)
        say(f"job {short(report.job)}: {report.tensors} tensors, {size}, in {report.path}")


def _with_swarm(options: NodeOptions, act: Callable[[_Swarm], Awaitable[_Result]]) -> _Result:
    """``act`` on a node that runs here, or else on one that starts for it."""
    invite = None if options.invite is None else read_invite(options.invite)
    node = _running(options, invite)
    if node is not None:
        url, token = node.status_url, node.control

        async def ask() -> _Result:
            async with StatusClient(url, token=token) as client:
                return await act(_Near(client))

        return run(ask)

    newcomer = not (options.node_home.folder / STATE_FILE).exists()

    async def body(hosted: Hosted[Node]) -> _Result:
        if newcomer:
            _say_joined(hosted.node.identity, options.node_home)
        await _listen(hosted.node)
        return await act(_Own(hosted.node))

    return run_node(options, lambda home, identity: _make(options, home, identity), body, level="warning")


def _say_joined(identity: Identity, home: Home) -> None:
    """One who only wanted to look has become a member, perhaps in the place of a peer of theirs."""
    uses = identity.member.uses
    by = f" by one of the {uses} uses of the invite" if uses else ""
    say(
        f"joined the swarm {identity.name} as peer {short(identity.peer)}{by}; it is kept in {home.folder}, "
        "and later commands need no --invite"
    )


def _running(options: NodeOptions, invite: Invite | None) -> Running | None:
    """The node to ask; None where this command starts one. Raises MisuseError where there is no way."""
    home = options.node_home
    own = home.running()
    if own is not None and own.status_url:
        if invite is not None:
            # Only to learn whether it is for the swarm that the home is in.
            Identity.load(home.folder).with_invite(invite, now=wall())
        return own
    if options.name is not None or (home.folder / STATE_FILE).exists():
        return None
    found = [node for node in running_nodes(options.base) if node.status_url]
    if invite is not None:
        found = [node for node in found if _came_by(invite, options.base / node.name)]
        return nearest(found) if found else None
    if not found:
        raise MisuseError(f"{home.folder} is in no swarm yet, and no node runs here: give --invite once")
    return nearest(found)


def _came_by(invite: Invite, folder: Path) -> bool:
    """Whether the peer in ``folder`` is in by ``invite`` already, and so may do what that allows."""
    try:
        return Identity.load(folder).invite.id == invite.id
    except FailureError:
        return False


def _make(options: NodeOptions, home: Home, identity: Identity) -> Node:
    config = NodeConfig(
        folder=home.folder, role="author", listen=ANY_PORT, disk=options.disk, capabilities=NOTHING
    )
    return Node(config, identity=identity, clock=SystemClock(), networks=options.networks(ANY_PORT))


async def _listen(node: Node) -> None:
    """Let a node that has just joined hear which jobs there are, and from their coordinators how they go."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    while (waited := loop.time() - began) < COORDINATOR_SECONDS:
        known = all(job.coordinator in node.links for job in node.jobs.all() if not job.ended)
        if waited >= HEAR_SECONDS and known:
            return
        await asyncio.sleep(0.1)


class _Near:
    """A node that runs in this home already."""

    def __init__(self, client: StatusClient) -> None:
        self._client = client

    async def documents(self) -> StatusDocument:
        document, _ = await self._client.fetch()
        return document

    async def cancel(self, job: str) -> CancelReport:
        return await self._client.cancel(job)

    async def export(self, job: str, path: Path, selection: Selection) -> ExportReport:
        return await self._client.export(job, path, selection)


class _Own:
    """The node of this process."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def documents(self) -> StatusDocument:
        return self._node.status()

    async def cancel(self, job: str) -> CancelReport:
        return await self._node.cancel(job)

    async def export(self, job: str, path: Path, selection: Selection) -> ExportReport:
        return await self._node.export(job, path, selection)


def _table(jobs: tuple[JobStatus, ...]) -> Table:
    rows = [
        (
            short(job.id),
            job.name,
            job.state,
            f"{job.step}/{job.steps}",
            shown_number(job.loss),
            shown_number(job.held_out),
            shown_span(job.eta),
        )
        for job in jobs
    ]
    heads = ("job", "name", "state", "step", "loss", "held-out", "ETA")
    return make_table(heads, rows, folded=("name",))
