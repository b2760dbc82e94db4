"""Certificates renew themselves: a peer that runs for months makes its next leaf in time (decision D1)."""

import asyncio
from pathlib import Path
from typing import Final

from swarm.clock import Clock
from swarm.errors import FailureError
from swarm.log import get_log
from swarm.net.pool import Pool

LOOK_SECONDS: Final = 6 * 3600.0
"""Between two looks at the leaf; it is renewed past half its life, so months are left when one fails."""

_log = get_log(__name__)


async def keep_renewed(pool: Pool, folder: Path, *, clock: Clock) -> None:
    """For ever: renew the leaf of ``pool``'s identity when it is due, and keep it in ``folder``."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        await renew_if_due(pool, folder, now=clock.wall())


async def renew_if_due(pool: Pool, folder: Path, *, now: float) -> bool:
    """Renew the leaf where less than half its life is left at ``now``; whether that was so, and worked."""
    renewed = pool.identity.renewed(now=now)
    if renewed == pool.identity:
        return False
    try:
        await asyncio.to_thread(renewed.save, folder)
        files = await asyncio.to_thread(renewed.tls_files, folder)
    except FailureError as error:
        _log.warning("the certificate could not be renewed", cause=str(error))
        return False
    pool.renew(renewed, files)
    _log.info("the certificate was renewed")
    return True
