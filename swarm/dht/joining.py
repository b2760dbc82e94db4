"""Joining: every seed and remembered contact is tried at once, and each says what came of it."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from swarm.clock import Clock
from swarm.dht.addresses import Address, Family, resolve, split_host_port
from swarm.dht.calls import Calls, ItselfError, NoRouteError, Target
from swarm.dht.messages import Ping
from swarm.errors import FailureError, RemoteTimeoutError

GRACE_SECONDS: Final = 1.0
"""How long the other seeds are still waited for after the first has answered."""

_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 1.0
"""Between two calls to a seed. Short, since a line that loses a fifth of its datagrams needs several."""

_REMEMBERED: Final = "remembered contact"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedAttempt:
    """What came of one address of one seed. ``address`` and ``family`` are empty where none was found."""

    seed: str
    address: str
    family: Family | Literal[""]
    answered: bool
    answer: str
    """In words: which peer answered, or why nobody did."""
    elapsed: float
    """Seconds until the answer, or until we stopped."""

    def __str__(self) -> str:
        where = f"{self.seed} ({self.address}, {self.family})" if self.address else self.seed
        return f"{where}: {self.answer}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReport:
    """What came of all seeds, and how many contacts the routing table has now."""

    attempts: tuple[SeedAttempt, ...]
    contacts: int
    elapsed: float

    def __str__(self) -> str:
        return f"{self.contacts} contacts after {self.elapsed:.1f} s; " + "; ".join(map(str, self.attempts))


@dataclass(slots=True, kw_only=True, eq=False)
class _Attempt:
    """``ended`` is None while it is still tried; ``hopeless`` ones are tried, but not waited for."""

    seed: str
    started: float
    address: Address | None = None
    answered: bool = False
    hopeless: bool = False
    answer: str = "no answer"
    ended: float | None = None


class Joining:
    """One effort to reach anybody; used once."""

    def __init__(self, calls: Calls, *, clock: Clock, deadline: float) -> None:
        self._calls = calls
        self._clock = clock
        self._deadline = deadline
        self._attempts: list[_Attempt] = []
        self._remembered = 0
        self._progress = asyncio.Event()

    async def run(self, seeds: Sequence[str], remembered: Sequence[Target]) -> tuple[SeedAttempt, ...]:
        """Try all until one has answered and the others had ``GRACE_SECONDS`` more.

        Raises MisuseError for a seed that is no address, and FailureError with a verdict where none has
        answered within the deadline. No seeds at all, or this node itself among them, is no failure:
        somebody has to be the first.
        """
        places = [(seed, *split_host_port(seed)) for seed in dict.fromkeys(seeds)]
        self._remembered = len(remembered)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._try_seed(self._attempt(seed), host, port))
                for seed, host, port in places
            ]
            tasks += [
                group.create_task(self._knock(self._attempt(_REMEMBERED, target.address), target))
                for target in remembered
            ]
            await self._wait()
            for task in tasks:
                task.cancel()
        if self._attempts and all(one.ended is None for one in self._attempts):
            raise FailureError(self._verdict())
        return tuple(map(self._report, self._attempts))

    def _attempt(self, seed: str, address: Address | None = None) -> _Attempt:
        attempt = _Attempt(seed=seed, started=self._clock.elapsed(), address=address)
        self._attempts.append(attempt)
        return attempt

    async def _wait(self) -> None:
        async def until(condition: Callable[[], bool]) -> None:
            while not condition():
                self._progress.clear()
                await self._progress.wait()

        def is_over() -> bool:
            return all(one.ended is not None for one in self._attempts)

        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._deadline):
                await until(lambda: is_over() or any(one.answered for one in self._attempts))
            async with asyncio.timeout(GRACE_SECONDS):
                await until(lambda: all(one.hopeless or one.ended is not None for one in self._attempts))

    async def _try_seed(self, attempt: _Attempt, host: str, port: int) -> None:
        """Replace ``attempt`` by one for each address of its seed, once they are known."""
        attempt.answer = "no answer from the name server"
        for pause in _pauses():
            try:
                found = await resolve(host, port)
                break
            except OSError as error:
                attempt.hopeless = True
                attempt.answer = f"does not resolve ({error.strerror or error})"
                self._progress.set()
                await asyncio.sleep(pause)
        place = self._attempts.index(attempt)
        attempts = [_Attempt(seed=attempt.seed, started=attempt.started, address=one) for one in found]
        self._attempts[place : place + 1] = attempts
        async with asyncio.TaskGroup() as group:
            for one, address in zip(attempts, found, strict=True):
                group.create_task(self._knock(one, Target(node=None, address=address)))

    async def _knock(self, attempt: _Attempt, target: Target) -> None:
        """Ask until somebody answers, with growing pauses; ends by being cancelled where nobody does."""
        for pause in _pauses():
            try:
                answered = await self._calls.call(target, Ping())
            except ItselfError:
                attempt.answer = "is this node itself"
                break
            except NoRouteError:
                attempt.hopeless = True
                attempt.answer = f"there is no {target.address.family} from here"
            except RemoteTimeoutError:
                attempt.hopeless = False
                attempt.answer = "no answer"
            else:
                attempt.answered = True
                attempt.answer = f"answered as {answered.contact.peer}"
                break
            self._progress.set()
            await asyncio.sleep(pause)
        attempt.ended = self._clock.elapsed()
        self._progress.set()

    def _report(self, attempt: _Attempt) -> SeedAttempt:
        ended = attempt.ended if attempt.ended is not None else self._clock.elapsed()
        return SeedAttempt(
            seed=attempt.seed,
            address=str(attempt.address) if attempt.address else "",
            family=attempt.address.family if attempt.address else "",
            answered=attempt.answered,
            answer=attempt.answer,
            elapsed=ended - attempt.started,
        )

    def _verdict(self) -> str:
        tried = [str(self._report(one)) for one in self._attempts if one.seed != _REMEMBERED]
        if self._remembered:
            tried.append(f"{self._remembered} remembered contacts: no answer")
        return (
            f"nobody answered within {self._deadline:g} s: {'; '.join(tried)}: check that a bootstrap node "
            "runs there, that UDP gets through, and that this machine's clock is right"
        )


def _pauses() -> Iterator[float]:
    """Seconds to wait after each failure, without end."""
    pause = _FIRST_PAUSE_SECONDS
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
