"""``swarm status``: ask a node, and show what it says."""

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from bootstrap.commandline import InterruptedRunError
from bootstrap.output import print_line, say
from bootstrap.running import run
from peer.config import StatusOptions
from peer.nearest import nearest
from peer.render import render_status
from peer.tables import make_console
from swarm.clock import wall
from swarm.errors import FailureError, MisuseError
from swarm.services.home import Home, Running, running_nodes
from swarm.services.status.client import StatusClient
from swarm.services.status.document import StatusDocument

WATCH_SECONDS: Final = 2.0
"""Between two looks of ``--watch``."""


def status(options: StatusOptions) -> None:
    """Show a node once, or until Ctrl+C."""
    if options.json and options.watch:
        raise MisuseError("--json prints one document: leave out --watch")
    if options.url and options.name:
        raise MisuseError("a URL says which node to ask: leave out --name")
    if not options.watch:
        run(lambda: _once(options))
        return
    with contextlib.suppress(InterruptedRunError):
        run(lambda: _watch(options))


async def _once(options: StatusOptions) -> None:
    url, token, others = _target(options)
    document, body = await _fetch(url, token)
    if options.json:
        print_line(body.decode("utf-8"))
        return
    make_console().print(render_status(document, wall()))
    if others:
        say(f"also running here: {', '.join(others)} (ask one with --name)")


async def _watch(options: StatusOptions) -> None:
    """Show again and again, through restarts of the node: its address is looked up every time.

    On a terminal in place, elsewhere one status after the other.
    """
    console = make_console()
    with contextlib.ExitStack() as stack:
        show: Callable[[RenderableType], Any] = console.print
        if console.is_terminal:
            live = stack.enter_context(Live(console=console, auto_refresh=False, vertical_overflow="crop"))
            show = partial(live.update, refresh=True)
        while True:
            show(await _look(options))
            await asyncio.sleep(WATCH_SECONDS)


async def _look(options: StatusOptions) -> RenderableType:
    try:
        url, token, _ = _target(options)
        document, _ = await _fetch(url, token)
    except FailureError as error:
        return Text(str(error), "red")
    return render_status(document, wall())


async def _fetch(url: str, token: str) -> tuple[StatusDocument, bytes]:
    async with StatusClient(url, token=token) as client:
        return await client.fetch()


def _target(options: StatusOptions) -> tuple[str, str, list[str]]:
    """Where to ask, with which token, and which other nodes run here."""
    if options.url:
        url = options.url if "://" in options.url else f"http://{options.url}"
        return url, options.token, []
    found = _running(options)
    node = nearest(found)
    return node.status_url, node.control, [other.name for other in found if other is not node]


def _running(options: StatusOptions) -> list[Running]:
    if options.name:
        node = Home(options.base, options.name).running()
        found = [] if node is None else [node]
    else:
        found = running_nodes(options.base)
    found = [node for node in found if node.status_url]
    if not found:
        place = f"{options.base / options.name}" if options.name else f"{options.base}"
        raise FailureError(f"no node runs in {place}: start one, or give the URL that a node printed")
    return found
