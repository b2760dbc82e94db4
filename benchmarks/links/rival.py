"""Another program's remote call: hivemind, in a virtual environment that is made here where there is none."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import platformdirs

from swarm.errors import FailureError

HIVEMIND: Final = "1.1.12"
NUMPY: Final = "numpy<2"
"""With a current numpy hivemind's own averaging reports success for nothing."""
INSTALL_SECONDS: Final = 900.0
START_SECONDS: Final = 120.0
CALL_SECONDS: Final = 60.0
_EXPERT: Final = Path(__file__).with_name("expert.py")
_BIN: Final = ("Scripts", "python.exe") if sys.platform == "win32" else ("bin", "python")
_VERSIONS: Final = """
import importlib.metadata, json
print(json.dumps({name: importlib.metadata.version(name) for name in ("hivemind", "numpy", "torch")}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """A Python that has hivemind, and the versions of what matters in it."""

    python: Path
    versions: dict[str, str]


def default_venv() -> Path:
    """Where the virtual environment is kept: in this user's cache."""
    name = f"hivemind-{HIVEMIND}-python{sys.version_info.major}.{sys.version_info.minor}"
    return platformdirs.user_cache_path("fusion-swarm") / "benchmarks" / name


async def prepare(venv: Path | None) -> Rival:
    """Look into ``venv``, or make the default one; raises FailureError with one line why it cannot be had."""
    folder = venv or default_venv()
    python = folder.joinpath(*_BIN)
    try:
        return Rival(python=python, versions=await _versions(python))
    except FailureError:
        if venv is not None:
            raise
    await _run(sys.executable, "-m", "venv", "--clear", str(folder), seconds=START_SECONDS)
    packages = (f"hivemind=={HIVEMIND}", NUMPY)
    await _run(str(python), "-m", "pip", "install", "--quiet", *packages, seconds=INSTALL_SECONDS)
    return Rival(python=python, versions=await _versions(python))


class Calls:
    """A client process that makes a call when it is told to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def seconds(self) -> float:
        """Make one call; returns how long it took. Raises FailureError where it fails."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        return float(await read_line(self._process, seconds=CALL_SECONDS))


@contextlib.asynccontextmanager
async def expert_calls(rival: Rival, size: int) -> AsyncIterator[Calls]:
    """A server and a client, two processes with what they start; ``size`` bytes go there and back."""
    async with started(rival, _EXPERT, "serve") as server:
        addresses = await read_line(server, seconds=START_SECONDS)
        async with started(rival, _EXPERT, "call", addresses, str(size)) as client:
            yield Calls(client)


@contextlib.asynccontextmanager
async def started(rival: Rival, script: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process of its Python, which ends with its standard input."""
    process = await asyncio.create_subprocess_exec(
        str(rival.python),
        "-P",
        str(script),
        *arguments,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()  # it ends what it has started, and then itself
        try:
            async with asyncio.timeout(START_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


async def read_line(process: asyncio.subprocess.Process, *, seconds: float) -> str:
    """What the process says next; raises FailureError where it does not."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds):
            line = await process.stdout.readline()
    except TimeoutError:
        raise FailureError(f"hivemind did not answer within {seconds:.0f} s") from None
    if not line:
        raise FailureError("hivemind ended before it answered")
    return line.decode()


async def _versions(python: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(await _run(str(python), "-c", _VERSIONS, seconds=START_SECONDS))
    if found["hivemind"] != HIVEMIND or int(found["numpy"].split(".")[0]) >= 2:
        raise FailureError(f"{python} has hivemind {found['hivemind']} with numpy {found['numpy']}")
    return found


async def _run(*command: str, seconds: float) -> str:
    """What ``command`` prints; raises FailureError with its last line where it fails."""
    try:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise FailureError(f"{command[0]}: {error.strerror}") from None
    try:
        async with asyncio.timeout(seconds):
            printed, complaint = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise FailureError(f"{' '.join(command[:4])} took more than {seconds:.0f} s") from None
    if process.returncode:
        last = complaint.decode(errors="replace").strip().splitlines()[-1:]
        raise FailureError(f"{' '.join(command[:4])}: {' '.join(last)}")
    return printed.decode()
