"""The far end of all connections that are measured here: in this process, or as a process of its own."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.links import bare, ours
from bootstrap.commandline import InterruptedRunError
from bootstrap.running import run
from swarm.net.network import SystemNetwork

LOOPBACK: Final = "127.0.0.1"
_ROOT: Final = Path(__file__).parents[2]


class FarEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Where the far end listens: HOST:PORT of each kind of connection."""

    link: str
    counter: str
    echo: str


@contextlib.asynccontextmanager
async def far_end(folder: Path) -> AsyncIterator[FarEnd]:
    """The far end in this process, as the member in ``folder``."""
    async with (
        ours.called(folder, network=SystemNetwork(), host=LOOPBACK) as (pool, _),
        bare.listening(folder, bare.Counter) as counter,
        bare.listening(folder, bare.Echo) as echo,
    ):
        yield FarEnd(link=str(pool.listening[0]), counter=str(counter), echo=str(echo))


@contextlib.asynccontextmanager
async def far_process(folder: Path) -> AsyncIterator[FarEnd]:
    """The far end in another process, which ends with this one."""
    command = (sys.executable, "-m", "benchmarks.links.far", str(folder), str(os.getpid()))
    paths = (str(_ROOT), os.environ.get("PYTHONPATH", ""))
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    assert process.stdout is not None
    try:
        yield msgspec.json.decode(await process.stdout.readline(), type=FarEnd)
    finally:
        process.kill()
        await process.wait()


async def _serve(folder: Path) -> None:
    async with far_end(folder) as where:
        print(msgspec.json.encode(where).decode(), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    with contextlib.suppress(InterruptedRunError):
        run(lambda: _serve(Path(sys.argv[1])), parent=int(sys.argv[2]))
