"""Status endpoints to ask."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from swarm.services.home import Home
from swarm.services.status.access import Access
from swarm.services.status.server import StatusServer
from swarm.services.status.source import StatusSource
from swarm.testing.status import SampleSource

StatusNode = Callable[..., AbstractContextManager[str]]


@contextmanager
def _status_node(
    home: Home | None, *, loopback: bool = True, source: StatusSource | None = None, role: str = "peer"
) -> Iterator[str]:
    """A status endpoint in a thread of its own, announced in ``home``."""
    ready = threading.Event()
    done: list[asyncio.Event] = []
    urls: list[str] = []
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve(control: str) -> None:
        access = Access(loopback=loopback, read="read", control=control)
        async with StatusServer(source or SampleSource(), host="127.0.0.1", port=0, access=access) as server:
            urls.append(server.url)
            loops.append(asyncio.get_running_loop())
            done.append(asyncio.Event())
            ready.set()
            await done[0].wait()

    with ExitStack() as stack:
        lock = stack.enter_context(home.lock()) if home is not None else None
        control = lock.control if lock is not None else "control"
        thread = threading.Thread(target=lambda: asyncio.run(serve(control)))
        thread.start()
        assert ready.wait(30)
        if lock is not None:
            lock.announce(urls[0], role=role)
        try:
            yield urls[0]
        finally:
            loops[0].call_soon_threadsafe(done[0].set)
            thread.join(30)


@pytest.fixture
def node() -> StatusNode:
    """A function that makes such a context."""
    return _status_node
