"""A peer at home, as people run it but for torch: ``home.py FOLDER INVITE [--advertise HOST:PORT]``.

One command a line on standard input: ``status``, answered with the document in one line, and ``leave``.
"""

import asyncio
import sys
from pathlib import Path

import msgspec

from bootstrap.hosting import Hosted, run_node
from bootstrap.node import NOTHING
from bootstrap.options import ServingOptions
from bootstrap.values import parse_reachable
from swarm.clock import SystemClock
from swarm.identity.membership import Identity
from swarm.services.home import Home
from swarm.services.node import Node, NodeConfig


def make(options: ServingOptions, home: Home, identity: Identity) -> Node:
    config = NodeConfig(
        folder=home.folder,
        role="peer",
        listen=options.listen,
        advertise=tuple(str(address) for address in options.advertise or ()),
        disk=options.disk,
        capabilities=NOTHING,
    )
    return Node(config, identity=identity, clock=SystemClock(), networks=options.networks(options.listen))


async def serve(hosted: Hosted[Node]) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while (await reader.readline()).strip() == b"status":
        sys.stdout.write(msgspec.json.encode(hosted.node.status()).decode() + "\n")
        sys.stdout.flush()


def main() -> None:
    folder, invite, *rest = sys.argv[1:]
    advertise = [parse_reachable(rest[1])] if rest else None
    options = ServingOptions(home=Path(folder), invite=invite, advertise=advertise)
    run_node(options, lambda home, identity: make(options, home, identity), serve)


if __name__ == "__main__":
    main()
