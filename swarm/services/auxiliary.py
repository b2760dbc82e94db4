"""Services beside the work: status pages, views, port mappings. A bug in one must not end the night."""

import asyncio
import traceback
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from swarm.clock import Clock
from swarm.log import get_log

log = get_log(__name__)

MAX_FAULTS: Final = 5
"""Faults within ``WINDOW_SECONDS`` after which a service is given up."""
WINDOW_SECONDS: Final = 600.0
PAUSE_SECONDS: Final = 1.0
"""Before a service that failed is started again."""


async def run_auxiliary(name: str, service: Callable[[], Awaitable[None]], *, clock: Clock) -> None:
    """Run ``service`` until it returns, starting it again after each fault, within a budget.

    Each fault is logged, its traceback at level debug. Cancellation passes through.
    """
    faults: deque[float] = deque(maxlen=MAX_FAULTS)
    while (fault := await _fault_of(service)) is not None:
        faults.append(clock.elapsed())
        log.error("a service failed", service=name, fault=f"{type(fault).__name__}: {fault}")
        log.debug("where it failed", service=name, trace="".join(traceback.format_exception(fault)))
        if len(faults) == MAX_FAULTS and faults[-1] - faults[0] < WINDOW_SECONDS:
            log.error("a service is switched off after too many faults", service=name)
            return
        await asyncio.sleep(PAUSE_SECONDS)


async def _fault_of(service: Callable[[], Awaitable[None]]) -> Exception | None:
    try:
        await service()
    except Exception as fault:  # noqa: BLE001 - the supervisor of auxiliary services
        return fault
    return None
