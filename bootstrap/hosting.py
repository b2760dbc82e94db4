"""Running a node in its home: the lock, its place in the swarm, its status endpoint, and its end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from bootstrap.options import LOOPBACK, NodeOptions, ServingOptions
from bootstrap.output import say
from bootstrap.running import run
from swarm.clock import wall
from swarm.identity.invite import read_invite
from swarm.identity.membership import STATE_FILE, Identity
from swarm.identity.opening import nobody_joined, open_identity
from swarm.log import configure
from swarm.net.address import Address
from swarm.services.home import Home, HomeLock
from swarm.services.revoked import adopt_revocations
from swarm.services.status.access import Access, is_loopback
from swarm.services.status.server import StatusServer
from swarm.services.status.source import StatusSource

_Result = TypeVar("_Result")


class HostedNode(StatusSource, Protocol):
    """A node as the programs see it. Entering joins the swarm, leaving drains.

    Entering raises FailureError or RemoteRefusalError, in one line, where the node cannot join.
    """

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def until_revoked(self) -> None:
        """Wait; raises RemoteRefusalError once this peer is known to be revoked."""
        ...

    @property
    def identity(self) -> Identity:
        """Its place in the swarm."""
        ...

    @property
    def has_joined(self) -> bool:
        """Whether it was in its swarm, or has begun one."""
        ...

    @property
    def addresses(self) -> tuple[str, ...]:
        """``host:port`` where others can reach it."""
        ...


_Node = TypeVar("_Node", bound=HostedNode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosted(Generic[_Node]):
    """A node that has joined."""

    node: _Node
    status_url: str


def require_place(options: NodeOptions) -> None:
    """Raise MisuseError or FailureError where no node can run in the home: before work that takes long."""
    home = options.node_home
    if options.invite is None and not (home.folder / STATE_FILE).exists():
        raise nobody_joined(home.folder)
    home.require_free()


def run_node(
    options: NodeOptions,
    make: Callable[[Home, Identity], _Node],
    body: Callable[[Hosted[_Node]], Coroutine[Any, Any, _Result]],
    *,
    level: str = "info",
) -> _Result:
    """Run a node as the work of this process: ``body`` with what :func:`host_node` yields.

    A serving node ends with the process that ``--parent`` names. Raises what :func:`host_node` raises, and
    InterruptedRunError when the user ended it.
    """
    configure("debug" if options.debug else level)
    status, parent = LOOPBACK, None
    if isinstance(options, ServingOptions):
        status, parent = options.status, options.parent

    async def host() -> _Result:
        async with host_node(options, make, status=status) as hosted:
            return await _while_member(hosted.node, body(hosted))

    return run(host, parent=parent)


async def _while_member(node: HostedNode, body: Coroutine[Any, Any, _Result]) -> _Result:
    """What ``body`` returns or raises; raises RemoteRefusalError once ``node`` is known to be revoked."""
    try:
        async with asyncio.TaskGroup() as tasks:
            watch = tasks.create_task(node.until_revoked(), name="watch for revocation")
            result = await body
            watch.cancel()
    except BaseExceptionGroup as group:
        if len(group.exceptions) == 1:
            raise group.exceptions[0] from None
        raise
    return result


@contextlib.asynccontextmanager
async def host_node(
    options: NodeOptions, make: Callable[[Home, Identity], _Node], *, status: Address = LOOPBACK
) -> AsyncIterator[Hosted[_Node]]:
    """Own the home, make the node that ``make`` makes join, and serve its status endpoint on ``status``.

    Raises MisuseError, FailureError or RemoteRefusalError, in one line, where the node cannot be.
    """
    home = options.node_home
    require_place(options)
    newcomer = not (home.folder / STATE_FILE).exists()
    invite = None if options.invite is None else read_invite(options.invite)
    with home.lock() as lock:
        async with contextlib.AsyncExitStack() as stack:
            try:
                identity = open_identity(home.folder, invite=invite, now=wall())
                adopt_revocations(home.base, home.folder, identity)
                node = make(home, identity)
                server = await _serve_status(stack, home, lock, node, status)
                await stack.enter_async_context(node)
            except BaseException:
                if newcomer:
                    _unbind(home)
                raise
            try:
                yield Hosted(node=node, status_url=server.url)
            finally:
                if newcomer and not node.has_joined:
                    _unbind(home)


def _unbind(home: Home) -> None:
    """An invite that led nowhere must not bind the home to its swarm."""
    (home.folder / STATE_FILE).unlink(missing_ok=True)


async def _serve_status(
    stack: contextlib.AsyncExitStack, home: Home, lock: HomeLock, source: StatusSource, listen: Address
) -> StatusServer:
    """Serve from before the node joins, so that a join that takes long can be watched."""
    access = Access(loopback=is_loopback(listen.host), read=home.status_token(), control=lock.control)
    server = StatusServer(source, host=listen.host, port=listen.port, access=access)
    await stack.enter_async_context(server)
    lock.announce(server.url, role=source.status().peer.role)
    if not access.loopback:
        say(f"the status page needs the token in {home.folder / 'status-token'}")
    return server
