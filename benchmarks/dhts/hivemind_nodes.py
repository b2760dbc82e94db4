"""Nodes of hivemind's DHT, all in one process. Runs in a virtual environment of its own.

One command a line on standard input: ``NUMBER join``, ``NUMBER set``, ``NUMBER get OTHER``, ``NUMBER stop``.
One answer a line: ``NUMBER SECONDS GOOD``. Nothing of this repository can be imported here.
"""

import asyncio
import os
import sys
import time
from typing import Any

from hivemind.dht.node import DHTNode
from hivemind.utils.timed_storage import get_dht_time

VALUE = b"v" * 250
LIFE = 1800.0

nodes: dict[int, Any] = {}
doors: list[Any] = []


def daemon(number: int) -> Any:
    """The process that has the sockets of a node."""
    return nodes[number].p2p._child  # noqa: SLF001 - there is no other way to end it without a word


async def act(number: int, what: str, *other: str) -> bool:
    """Whether it came to anything."""
    if what == "join":
        nodes[number] = await DHTNode.create(initial_peers=doors, host_maddrs=["/ip4/127.0.0.1/tcp/0"])
        if not number:
            doors.extend(await nodes[number].p2p.get_visible_maddrs())
        return not number or bool(nodes[number].protocol.routing_table.uid_to_peer_id)
    if what == "set":
        return bool(await nodes[number].store(f"record {number}", VALUE, get_dht_time() + LIFE))
    if what == "get":
        found = await nodes[number].get(f"record {other[0]}")
        return bool(found is not None and found.value == VALUE)
    daemon(number).kill()
    return True


async def answer(line: str) -> None:
    """Take one command."""
    number, *command = line.split()
    began = time.perf_counter()
    good = False
    try:
        good = await act(int(number), *command)
    finally:
        print(number, time.perf_counter() - began, int(good), flush=True)


async def main() -> None:
    """Take commands until there are no more."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks = set()
    while line := await reader.readline():
        tasks.add(loop.create_task(answer(line.decode())))
    for number in nodes:
        if daemon(number).returncode is None:
            daemon(number).kill()


asyncio.run(main())
sys.stdout.flush()
os._exit(0)  # the interpreter's own end stumbles over the library's event loops
