"""Guided target: what any program on the machine, or a web page in a browser, sends to the status port."""

import asyncio
import re
from typing import Any

from guided_target import Target

from swarm.services.status.access import Access
from swarm.services.status.connections import Connections
from swarm.services.status.pages import StatusPages
from swarm.testing.status import SampleSource

CONTROL = "control-token"
ACCESS = Access(loopback=True, read="read-token", control=CONTROL)
TURNS = 30
"""Iterations of the loop in which a request is answered."""


class Wire(asyncio.Transport):
    """Keeps what the server writes."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 5), "sockname": ("127.0.0.1", 6)})
        self.written = bytearray()
        self.closed = False

    def write(self, data: Any) -> None:
        self.written += data

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Nothing more comes anyway."""

    def resume_reading(self) -> None:
        """Nothing more comes anyway."""


class Server:
    """The status server's own application and connections, on a loop of their own, without a socket."""

    def __init__(self) -> None:
        self.source = SampleSource()
        self.faults: list[dict[str, Any]] = []
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        pages = StatusPages(self.source, ACCESS, allowed=lambda _: None)
        self.runner = self.loop.run_until_complete(pages.runner())
        assert self.runner.server is not None
        self.connections = Connections(self.runner.server)

    def answer(self, data: bytes) -> bytes:
        return self.loop.run_until_complete(self._answer(data))

    async def _answer(self, data: bytes) -> bytes:
        wire, protocol = Wire(), self.connections.accept()
        protocol.connection_made(wire)
        protocol.data_received(data)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        protocol.connection_lost(None)
        for _ in range(3):
            await asyncio.sleep(0)
        return bytes(wire.written)


SERVER: list[Server] = []
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})")


def parse_request(data: bytes) -> None:
    """No fault of ours, and no command without the control token."""
    if not SERVER:
        SERVER.append(Server())
    server = SERVER[0]
    written = server.answer(data)
    assert not server.faults, server.faults
    assert all(int(code) < 500 for code in _STATUS.findall(written)), written
    assert not server.source.commands or CONTROL.encode() in data
    assert len(server.connections) == 0
    server.source.commands.clear()


TARGETS = {"status_requests": Target(parse=parse_request)}
