"""The device, the one thread that owns torch, and the settings under which like machines compute alike.

Decision D5: single-threaded on CPU, deterministic algorithms, no TF32. OpenMP keeps the number of intra-op
threads by calling thread, so it is set inside the device thread. Beside the CPU there are CUDA, XPU (Intel)
and MPS (Apple); what torch calls by another name for each of them is here.
"""

import asyncio
import logging
import os
import platform
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, ParamSpec, Self, TypeVar

import psutil
import torch

from swarm.errors import MisuseError
from swarm.log import get_log

ACCELERATORS: Final = ("cuda", "xpu", "mps")
"""The kinds of devices beside the CPU."""

_log = get_log(__name__)

P = ParamSpec("P")
T = TypeVar("T")


def find_device(text: str = "") -> torch.device:
    """The device that ``text`` names (``cpu``, ``cuda``, ``xpu:1``); for none CUDA's first, or the CPU.

    Raises MisuseError where it does not exist here, or is of another kind.
    """
    if not text:
        text = "cuda:0" if torch.cuda.is_available() else "cpu"
    kind, _, number = text.partition(":")
    if kind not in {"cpu", *ACCELERATORS} or not (number.isdecimal() or (kind == text)):
        raise MisuseError(f"--device {text} is not a device for training; use cpu, cuda:N, xpu:N or mps")
    if kind == "cpu":
        return torch.device("cpu")
    index, found = int(number or 0), torch.get_device_module(kind).device_count()
    if index >= found:
        name = kind.upper()
        raise MisuseError(
            f"--device {text} is not here: torch {torch.__version__} sees {found} {name} devices"
        )
    return torch.device(kind, index)


def configure_device(device: torch.device) -> None:
    """Make the calling thread, and torch in this process, compute as like machines do (decision D5).

    New memory is filled before operators write to it, which costs nothing that can be measured: what one
    leaves unwritten would otherwise carry what another job, or this program, had there.
    """
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=device.type != "cpu")
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False
    if device.type in {"cuda", "xpu"}:
        torch.get_device_module(device).set_device(device)


def like_machines(device: torch.device) -> str:
    """What two machines must have in common to compute the same bits: equal strings are like machines."""
    match device.type:
        case "cuda":
            chip = torch.cuda.get_device_name(device)
            cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
            build = f"cuda {torch.version.cuda} cudnn {cudnn}"
        case "xpu":
            chip, build = torch.xpu.get_device_name(device), f"xpu {torch.version.xpu}"
        case "mps":
            chip, build = torch.backends.mps.get_name(), f"macOS {platform.mac_ver()[0]}"
        case _:
            chip = f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
            onednn = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
            mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
            build = f"mkl {mkl}, onednn {onednn}"
    return f"torch {torch.__version__}, {build}, {chip}, 1 thread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of memory on a device."""

    total: int
    available: int


def memory_of(device: torch.device) -> Memory:
    """The device's memory, and how much of it is free now."""
    found = psutil.virtual_memory()
    if device.type in {"cuda", "xpu"}:
        available, total = torch.get_device_module(device).mem_get_info(device)
        return Memory(total=total, available=available)
    if device.type == "mps":  # a part of what the processor has, too
        total = torch.mps.recommended_max_memory()
        left = total - torch.mps.driver_allocated_memory()
        return Memory(total=total, available=max(0, min(left, found.available)))
    return Memory(total=found.total, available=found.available)


def seeder(device: torch.device) -> Callable[[int], object]:
    """What seeds the generator that operators draw from on ``device``."""
    if device.type == "mps":
        return torch.mps.manual_seed
    if device.type == "cpu":
        return torch.default_generator.manual_seed
    module = torch.get_device_module(device)
    module.init()
    seed: Callable[[int], object] = module.default_generators[device.index].manual_seed
    return seed


def free_caches(device: torch.device) -> None:
    """Give back what torch keeps of the device's memory for later use."""
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()


def end_process(sentence: str) -> None:
    """End this process with ``sentence`` as its last line: no thread can be made to leave an operator."""
    _log.error(sentence)
    logging.shutdown()
    os._exit(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long an operator may run that nobody waits for any more, and what is done then."""

    abandoned: float = 300.0
    """Seconds after the one who waited was cancelled, which is when the job has ended."""
    closing: float = 60.0
    """Seconds after :meth:`DeviceThread.aclose` was called."""
    on_stuck: Callable[[str], None] = end_process


class DeviceThread:
    """The one thread that calls torch. Work runs in the order in which it is asked for.

    ::

        async with DeviceThread(find_device("cpu")) as device:
            result = await device.run(executor.forward, step, 0, inputs, received)

    An operator that never returns cannot be stopped. Where one outlives its job for longer than ``patience``,
    the process ends with a line that says so, and whoever keeps it running starts it again.
    """

    def __init__(
        self, device: torch.device, patience: Patience | None = None, *, compiles: bool = False
    ) -> None:
        self.device = device
        self.compiles = compiles
        """Whether stages train here through ``torch.compile`` (:mod:`swarm.train.program_compiled`)."""
        self._patience = patience or Patience()
        self._pool = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="device", initializer=configure_device, initargs=(device,)
        )

    async def run(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` on the device thread and wait for it.

        Cancelling drops work that has not begun, and stops the waiting for work that has.
        """
        running = self._pool.submit(work, *args, **kwargs)
        try:
            return await asyncio.wrap_future(running)
        except asyncio.CancelledError:
            name = getattr(work, "__qualname__", "work")
            loop = asyncio.get_running_loop()
            loop.call_later(self._patience.abandoned, self._judge, running, name)
            raise

    def _judge(self, running: Future[Any], name: str) -> None:
        """Work was abandoned a while ago."""
        if not running.done():
            self._patience.on_stuck(
                f"the device still runs {name} for a job that ended {self._patience.abandoned:.0f} s ago, "
                "and nothing can stop it; this process ends, so that the device is free: start it again"
            )

    async def aclose(self) -> None:
        """Let what runs end, drop what has not begun, and end the thread."""
        loop = asyncio.get_running_loop()
        ending = loop.run_in_executor(None, lambda: self._pool.shutdown(wait=True, cancel_futures=True))
        done, _ = await asyncio.wait([ending], timeout=self._patience.closing)
        if not done:
            self._patience.on_stuck(
                f"an operator did not return within {self._patience.closing:.0f} s; "
                "this process ends without it"
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
