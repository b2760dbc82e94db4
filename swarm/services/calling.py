"""Calling until somebody of the swarm is linked: performs what ``protocol.joining`` decides (decision D1)."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Final, assert_never

from swarm.clock import Clock
from swarm.dht.addresses import Address, resolve, split_host_port
from swarm.errors import FailureError, MisuseError, RemoteError, RemoteRefusalError, SwarmError, UserError
from swarm.log import get_log
from swarm.net.connecting import STAGGER_SECONDS
from swarm.net.link import Link
from swarm.net.pool import Pool
from swarm.protocol.joining import (
    Alone,
    Answer,
    Answered,
    Call,
    Conclude,
    Elapsed,
    Event,
    Found,
    JoiningMachine,
    JoiningStatistics,
    Linked,
    Source,
)

CALL_SECONDS: Final = 10.0
"""How long a name may take to be resolved, and each number of it to give a link."""

MOST_NUMBERS: Final = 8
"""Numeric addresses of one name that are called."""

MOMENT_SECONDS: Final = 1.0
"""How long the other doors may take once one has opened."""

Resolve = Callable[[str, int], Awaitable[tuple[Address, ...]]]

_log = get_log(__name__)


class Calling:
    """The calls of one node that look for a way into its swarm, each a task in ``tasks``."""

    def __init__(
        self,
        pool: Pool,
        *,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        listens: float = 0.0,
        resolve: Resolve = resolve,
    ) -> None:
        """``listens`` is for how many seconds neighbours are listened for before a verdict; 0 where not."""
        self._pool = pool
        self._clock = clock
        self._tasks = tasks
        self._resolve = resolve
        random = Random()  # noqa: S311 - spreads calls, guards nothing
        self._machine = JoiningMachine(now=clock.elapsed(), spread=random.uniform, listens=listens)
        self._moved = asyncio.Event()
        self._changed = asyncio.Event()
        self._verdict: SwarmError | None = None
        self.on_verdict: list[Callable[[SwarmError], None]] = []
        """Hear of every verdict; there is another one after each time that all links were lost."""

    def statistics(self) -> JoiningStatistics:
        """Where the machine is."""
        return self._machine.statistics()

    def found(self, addresses: Sequence[str], source: Source) -> None:
        """``addresses`` may lead into the swarm; those of this node and of linked peers say nothing new."""
        known = {address for link in self._pool.links.values() for address in link.hello.addresses}
        for address in addresses:
            if address not in known and address not in self._pool.addresses:
                self._feed(Found(address=address, source=source))

    def linked(self) -> None:
        """A link is up."""
        self._feed(Linked())

    def lost(self) -> None:
        """A link has ended."""
        if not self._pool.links:
            self._feed(Alone())

    async def run(self) -> None:
        """For ever: mind the machine's deadline."""
        while True:
            self._feed(Elapsed())
            self._moved.clear()
            left = self._machine.deadline - self._clock.elapsed()
            try:
                async with asyncio.timeout(left if math.isfinite(left) else None):
                    await self._moved.wait()
            except TimeoutError:
                continue

    def _feed(self, event: Event) -> None:
        for action in self._machine.handle(event, now=self._clock.elapsed()):
            match action:
                case Call(address=address):
                    self._tasks.create_task(self._call(address), name="call to join")
                case Conclude(sentence=sentence, code=code):
                    verdict = RemoteRefusalError(code, sentence) if code else FailureError(sentence)
                    self._verdict = verdict
                    for listener in self.on_verdict:
                        listener(verdict)
                case _:
                    assert_never(action)
        self._moved.set()
        self._changed.set()

    async def _call(self, address: str) -> None:
        self._feed(Answered(address=address, answers=await self._answers(address)))

    async def _answers(self, address: str) -> tuple[Answer, ...]:
        """Call every number that the host of ``address`` has; what they answered, or nothing with a link."""
        began = self._clock.elapsed()
        try:
            host, port = split_host_port(address)
            async with asyncio.timeout(CALL_SECONDS):
                numbers = (await self._resolve(host, port))[:MOST_NUMBERS]
        except TimeoutError:
            why = f"{address} has a name that nobody resolved within {CALL_SECONDS:.0f} s"
        except OSError as error:
            why = f"{address} does not exist: there is no host {host} ({error.strerror or error})"
        except MisuseError as error:
            why = str(error)
        else:
            return await self._call_all(numbers)
        return (Answer(address=address, family="", sentence=why, seconds=self._clock.elapsed() - began),)

    async def _call_all(self, numbers: Sequence[Address]) -> tuple[Answer, ...]:
        """One after the other begins, a quarter of a second apart; the first link ends the other calls."""
        async with asyncio.TaskGroup() as group:
            calls = [
                group.create_task(self._call_number(number, place * STAGGER_SECONDS))
                for place, number in enumerate(numbers)
            ]
            for done in asyncio.as_completed(calls):
                if await done is None:
                    for call in calls:
                        call.cancel()
                    return ()
        return tuple(answer for call in calls if (answer := call.result()) is not None)

    async def _call_number(self, number: Address, delay: float) -> Answer | None:
        await asyncio.sleep(delay)
        began, code = self._clock.elapsed(), ""
        try:
            async with asyncio.timeout(CALL_SECONDS):
                await self._pool.dial([str(number)])
        except RemoteRefusalError as error:
            code, sentence = error.code, str(error)
        except (UserError, RemoteError) as error:
            sentence = str(error)
        except TimeoutError:
            sentence = f"{number} did not answer within {CALL_SECONDS:.0f} s"
        else:
            return None
        seconds = self._clock.elapsed() - began
        return Answer(
            address=str(number), family=number.family, sentence=sentence, seconds=seconds, code=code
        )

    async def arrive(self) -> tuple[Link, ...]:
        """The links, once there is one and the other doors had a moment.

        Raises the verdict of this effort: a RemoteRefusalError where calling again is in vain, else a
        FailureError.
        """
        while not self._pool.links:
            if self._machine.state == "trying" and self._verdict is not None:
                raise self._verdict
            await self._change()
        return await self._settled()

    async def until_linked(self) -> tuple[Link, ...]:
        """The same, however long it takes."""
        while not self._pool.links:
            await self._change()
        return await self._settled()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _settled(self) -> tuple[Link, ...]:
        try:
            async with asyncio.timeout(MOMENT_SECONDS):
                while self._machine.calls:
                    await self._change()
        except TimeoutError:
            _log.debug("some addresses have not answered yet")
        return tuple(self._pool.links.values())
