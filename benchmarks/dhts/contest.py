"""What is measured of each program: nodes that join, set, get, and stop without a word."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from swarm.clock import elapsed


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one action: how long it took, and whether it came to anything."""

    seconds: float
    good: bool


class Contestant(Protocol):
    """So many nodes of one program, which all run here."""

    async def join(self, number: int) -> Outcome:
        """Start this node; all but node 0 enter through it. Good where it then knows somebody."""
        ...

    async def set(self, number: int) -> Outcome:
        """Publish this node's record anew. Good where another node took it."""
        ...

    async def get(self, number: int, other: int) -> Outcome:
        """From this node, find the record of the ``other``. Good where it is found."""
        ...

    async def stop(self, number: int) -> None:
        """End this node without a word to anybody."""
        ...


@dataclass(slots=True, kw_only=True)
class Contest:
    """What came of all actions of one program, over all repetitions."""

    joins: list[Outcome] = field(default_factory=list)
    sets: list[Outcome] = field(default_factory=list)
    gets: list[Outcome] = field(default_factory=list)
    late_sets: list[Outcome] = field(default_factory=list)
    """After half of the nodes have stopped."""
    late_gets: list[Outcome] = field(default_factory=list)


AT_A_TIME = 2
"""Actions under way at a time. All nodes of a program share a process: more would measure its processor."""

MANY_AT_A_TIME = 8
"""The same where most of the time is spent waiting for what was lost: more than that, and the process of all
nodes answers so late that they take each other for gone."""


async def compete(contestant: Contestant, nodes: int, *, seed: int, into: Contest) -> None:
    """Join, set and get with ``nodes`` nodes; stop half; get from some that are left, set from others.

    Whoever acts after that has not heard of it before: its first action meets all that are gone.
    """
    source = random.Random(seed)
    for number in range(nodes):
        into.joins.append(await contestant.join(number))
    everybody = range(nodes)
    into.sets += await together([partial(contestant.set, n) for n in everybody])
    into.gets += await together([partial(contestant.get, n, source.randrange(nodes)) for n in everybody])
    stopped = set(source.sample(everybody, nodes // 2))
    for number in stopped:
        await contestant.stop(number)
    left = [number for number in everybody if number not in stopped]
    getting, setting = left[::2], left[1::2]
    wanted = dict(zip(getting, source.sample(everybody, len(getting)), strict=True))
    into.late_gets += await together([partial(contestant.get, n, wanted[n]) for n in getting])
    into.late_sets += await together([partial(contestant.set, n) for n in setting])


async def together(
    actions: Iterable[Callable[[], Awaitable[Outcome]]], *, at_a_time: int = AT_A_TIME
) -> list[Outcome]:
    """Take all ``actions``, so many at a time."""
    room = asyncio.Semaphore(at_a_time)

    async def take(action: Callable[[], Awaitable[Outcome]]) -> Outcome:
        async with room:
            return await action()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(take(action)) for action in actions]
    return [task.result() for task in tasks]


async def timed(action: Awaitable[bool]) -> Outcome:
    """What came of ``action``, which says whether it was good."""
    began = elapsed()
    good = await action
    return Outcome(seconds=elapsed() - began, good=good)
