"""Connecting to a host that has several addresses: the first that answers (RFC 8305, happy eyeballs).

One broken family, such as IPv6 behind a router that only pretends to have it, must cost a quarter of a second
and not the whole call.
"""

import asyncio
import errno
import itertools
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from swarm.errors import LinkLostError
from swarm.net.tls import reason_of

STAGGER_SECONDS: Final = 0.25
"""How long an attempt is alone before the next begins (RFC 8305, section 5)."""


@dataclass(frozen=True, slots=True)
class Target:
    """A numeric address as the resolver gives it."""

    family: int
    address: tuple[Any, ...]


def in_turns(targets: Sequence[Target]) -> list[Target]:
    """The targets with the families in turns, the first one's first (RFC 8305, section 4)."""
    if not targets:
        return []
    same = [target for target in targets if target.family == targets[0].family]
    other = [target for target in targets if target.family != targets[0].family]
    pairs = itertools.zip_longest(same, other)
    return [target for pair in pairs for target in pair if target is not None]


async def connect_first(targets: Sequence[Target]) -> socket.socket:
    """A connected socket to the first of ``targets`` that answers.

    Raises LinkLostError where none does; its text has the host as its subject. Has no deadline itself.
    """
    waiting = in_turns(targets)
    several = len(waiting) > 1
    running: dict[asyncio.Task[socket.socket | OSError], Target] = {}
    errors: list[str] = []
    connected: list[socket.socket] = []
    async with asyncio.TaskGroup() as group:
        while (waiting or running) and not connected:
            if waiting:
                target = waiting.pop(0)
                running[group.create_task(_attempt(target))] = target
            patience = STAGGER_SECONDS if waiting else None
            done, _ = await asyncio.wait(running, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                result, target = task.result(), running.pop(task)
                if isinstance(result, OSError):
                    errors.append(_why_not(result) + (f" at {target.address[0]}" if several else ""))
                else:
                    connected.append(result)
        for task in running:
            task.cancel()
    if not connected:
        raise LinkLostError(", ".join(dict.fromkeys(errors)))
    for late in connected[1:]:
        late.close()
    return connected[0]


async def _attempt(target: Target) -> socket.socket | OSError:
    try:
        sock = socket.socket(target.family, socket.SOCK_STREAM)
    except OSError as error:
        return error
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, target.address)
    except OSError as error:
        sock.close()
        return error
    except BaseException:
        sock.close()
        raise
    return sock


def _why_not(error: OSError) -> str:
    words = {
        errno.ECONNREFUSED: "does not listen (connection refused)",
        errno.EHOSTUNREACH: "cannot be reached (host unreachable)",
        errno.ENETUNREACH: "cannot be reached (network unreachable)",
        errno.ETIMEDOUT: "did not answer",
    }
    return words.get(error.errno or 0, f"cannot be reached ({reason_of(error)})")
