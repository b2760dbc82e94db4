"""What a bootstrap node costs at rest: memory with many known peers and links, and over callers without end.

The node is ``python -m bootstrap`` in a process of its own; its peers are pools of this one, on loopback.
"""

import asyncio
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import psutil
import typer

from benchmarks.common import Row, Table, Target, Versions
from benchmarks.links import ours
from bootstrap.commandline import run_program, single_command
from bootstrap.running import run
from swarm.clock import SystemClock
from swarm.dht.discovery import Discovery, DiscoveryConfig
from swarm.identity.authority import Authority
from swarm.identity.chain import Member
from swarm.identity.door import first_epoch_key
from swarm.identity.invite import Invite
from swarm.identity.keys import PrivateKey
from swarm.identity.membership import Identity
from swarm.identity.rights import ALL_RIGHTS
from swarm.net.handlers import Handlers
from swarm.net.link import Link
from swarm.net.network import SystemNetwork
from swarm.net.pool import Pool
from swarm.wire.messages.base import Message

MB: Final = 1_000_000
KB: Final = 1000
LOOPBACK: Final = "127.0.0.1"
CALLERS_AT_ONCE: Final = 8

MEMORY_TARGET: Final = Target(most=80.0)
LINK_TARGET: Final = Target(most=50.0)
GROWTH_TARGET: Final = Target(most=1.02)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapBenchmarkOptions:
    """Measure the memory of a bootstrap node with known peers, with links, and over many callers.

    Example: python benchmarks/at_rest.py --check
    """

    known: Annotated[int, typer.Option(help="Members that have called; some of them stay.", min=10)] = 1000
    links: Annotated[int, typer.Option(help="Links that are up when its memory is measured.", min=1)] = 200
    further: Annotated[int, typer.Option(help="Links that are added then, for what one costs.", min=1)] = 50
    callers: Annotated[int, typer.Option(help="Members that come and go after that.", min=2)] = 600
    json: Annotated[bool, typer.Option("--json", help="Print data in place of a table.")] = False
    check: Annotated[bool, typer.Option("--check", help="Exit 1 where a target is missed.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Bytes of memory of the node: at its start, with those known that left, with links, with more, later."""

    idle: int
    known: int
    linked: int
    further: int
    visited: Sequence[int]


class Peers:
    """Members of one swarm that call one node; those that stay use its DHT, too."""

    def __init__(self, folder: Path, invite: Invite, address: str) -> None:
        self._folder = folder
        self._invite = invite
        self._address = address
        self._made = 0

    @contextlib.asynccontextmanager
    async def linked(self) -> AsyncIterator[Pool]:
        """One more member, linked while the context lasts."""
        self._made += 1
        folder = self._folder / f"{self._made}"
        folder.mkdir()
        Identity.join(self._invite, key=PrivateKey.generate(), now=SystemClock().wall()).save(folder)
        pool = ours.make_pool(folder, network=SystemNetwork(), handlers=_Quiet(), listen=None)
        async with pool:
            pool.addresses = (f"198.51.100.7:{self._made}", f"[2001:db8::7]:{self._made}")
            await pool.dial([self._address])
            yield pool

    @contextlib.asynccontextmanager
    async def at_home(self) -> AsyncIterator[Pool]:
        """The same, and published in the DHT."""
        async with self.linked() as pool:
            identity = pool.identity
            config = DiscoveryConfig(swarm=identity.swarm, listen=(LOOPBACK,), port=0, storing="never")
            discovery = Discovery(config, key=identity.key, clock=SystemClock())
            discovery.set_epoch(0, first_epoch_key(identity.door_key))
            await discovery.start()
            try:
                await discovery.join([self._address])
                await discovery.publish([f"{LOOPBACK}:{discovery.port}"], "peer")
                yield pool
            finally:
                await discovery.aclose()

    async def visit(self, count: int) -> None:
        """So many new members call and leave, a few at a time."""
        at_once = asyncio.Semaphore(CALLERS_AT_ONCE)

        async def one() -> None:
            async with at_once, self.linked():
                pass

        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one())


class _Quiet(Handlers):
    """Takes what comes, and does nothing."""

    def on_up(self, link: Link) -> None:
        """Nothing to do."""
        del link

    def on_down(self, link: Link, reason: str) -> None:
        """Nothing to do."""
        del link, reason

    def on_message(self, link: Link, message: Message, payload: memoryview) -> None:
        """Nothing to do."""
        del link, message, payload

    def on_admitted(self, member: Member, credentials: bytes) -> None:
        """Nothing to do."""
        del member, credentials


@contextlib.contextmanager
def _bootstrap(folder: Path, invite: Invite) -> Iterator["subprocess.Popen[str]"]:
    words = ["--invite", invite.encode(), "--home", str(folder), "--listen", f"{LOOPBACK}:0", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "bootstrap", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=30)


async def measure(folder: Path, options: BootstrapBenchmarkOptions) -> Found:
    """Run a node below ``folder``, and look at its memory."""
    authority = Authority.create("benchmark", public=False, now=SystemClock().wall())
    invite = authority.issue(label="", rights=ALL_RIGHTS, addresses=(), now=SystemClock().wall())
    with _bootstrap(folder / "node", invite) as process:
        address = await asyncio.to_thread(_address, process)
        node = psutil.Process(process.pid)
        peers = Peers(folder, invite, address)
        idle = node.memory_info().rss
        await peers.visit(options.known - options.links)
        known = node.memory_info().rss
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(options.links):
                await stack.enter_async_context(peers.at_home())
            linked = node.memory_info().rss
            for _ in range(options.further):
                await stack.enter_async_context(peers.linked())
            further = node.memory_info().rss
            visited = []
            for _ in range(2):
                await peers.visit(options.callers // 2)
                visited.append(node.memory_info().rss)
        return Found(idle=idle, known=known, linked=linked, further=further, visited=visited)


def _address(process: "subprocess.Popen[str]") -> str:
    """Where the node says that it is."""
    assert process.stdout is not None
    document = ""
    while True:
        document += process.stdout.readline()
        with contextlib.suppress(json.JSONDecodeError):
            return str(json.loads(document)["addresses"][0])


def table_of(found: Found, options: BootstrapBenchmarkOptions) -> Table:
    """The table."""
    per_link = (found.further - found.linked) / options.further / KB
    first, second = found.visited
    return Table(
        title="A bootstrap node at rest",
        first="before",
        second="after",
        rows=[
            Row(
                what=f"memory with {options.known} known peers and {options.links} links (ratio: MB)",
                first=found.idle / MB,
                second=found.linked / MB,
                unit="MB",
                ratio=found.linked / MB,
                target=MEMORY_TARGET,
            ),
            Row(
                what=f"each of {options.further} further links (ratio: KB)",
                first=found.linked / MB,
                second=found.further / MB,
                unit="MB",
                ratio=per_link,
                target=LINK_TARGET,
            ),
            Row(
                what=f"{options.callers // 2} callers, and as many again",
                first=first / MB,
                second=second / MB,
                unit="MB",
                ratio=second / first,
                target=GROWTH_TARGET,
            ),
        ],
        versions=Versions.here("uvloop", "cryptography"),
        remarks=[
            f"{found.known / MB:.1f} MB with those known that left again, before any link stays",
            "peers that stay have a record in the node's DHT",
        ],
    )


def bootstrap(options: BootstrapBenchmarkOptions) -> int:
    """Measure, and print what came of it."""

    async def body() -> Found:
        with tempfile.TemporaryDirectory() as folder:
            return await measure(Path(folder), options)

    return table_of(run(body), options).publish(json=options.json, check=options.check)


if __name__ == "__main__":
    sys.exit(
        run_program(
            single_command("bootstrap", BootstrapBenchmarkOptions, bootstrap), "bootstrap.py", sys.argv[1:]
        )
    )
