"""Calling: one attempt with its deadlines, and the account of several that all failed."""

import asyncio
from dataclasses import dataclass
from typing import Final

from swarm.clock import Clock
from swarm.errors import (
    FailureError,
    RemoteError,
    RemoteRefusalError,
    RemoteTimeoutError,
    UserError,
)
from swarm.net.address import Address
from swarm.net.network import Network
from swarm.net.tls import TlsChannel
from swarm.protocol.session import HELLO_SECONDS

FIRST_BYTE_SECONDS: Final = 5.0
"""How long one who calls may take to say something: with the connection its first words are under way."""
LAST_WORDS_SECONDS: Final = 1.0
"""How long a failed handshake may take to tell the other side why."""

MAX_ANSWER_LENGTH: Final = 1000
"""Characters of what one address answered that are kept."""


async def connect(network: Network, address: Address, channel: TlsChannel, *, seconds: float) -> None:
    """Call ``address`` with ``channel``, up to the end of the TLS handshake.

    Raises a RemoteError whose text has the address as its subject. The call has ``seconds`` to be answered,
    TLS as long as a hello.
    """
    try:
        async with asyncio.timeout(seconds):
            await network.connect(address, lambda: channel)
    except TimeoutError:
        channel.abort()
        raise RemoteTimeoutError(f"did not answer within {seconds:g} s") from None
    except BaseException:
        channel.abort()
        raise
    await shake_hands(channel)


async def shake_hands(channel: TlsChannel) -> None:
    """The TLS handshake with its deadline; raises a RemoteError with the other side as its subject.

    A channel that failed has told the other side why, and is closed.
    """
    try:
        if not channel.dialed:
            async with asyncio.timeout(FIRST_BYTE_SECONDS):
                await channel.wait_heard()
        async with asyncio.timeout(HELLO_SECONDS):
            await channel.handshake()
    except TimeoutError:
        did = f"finish the TLS handshake within {HELLO_SECONDS:.0f} s"
        if not channel.dialed and not channel.heard:
            did = f"say anything within {FIRST_BYTE_SECONDS:.0f} s"
        await channel.aclose(0.0)
        raise RemoteTimeoutError(f"did not {did}") from None
    except RemoteError:
        await channel.aclose(LAST_WORDS_SECONDS)
        raise
    except BaseException:
        channel.abort()
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One call: where, what came of it, how long that took, and when (wall time) it began."""

    address: str
    answer: str
    """With the address as its subject; empty where it gave the link."""
    seconds: float
    began: float

    def __str__(self) -> str:
        return f"{self.address} ({self.seconds:.1f} s) {self.answer or 'answered'}"


class Answers:
    """What each address answered, in the order in which they were called."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._attempts: list[Attempt] = []
        self._refusal: RemoteRefusalError | None = None
        self._wall, self._elapsed = 0.0, 0.0

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """All of them, the first one first."""
        return tuple(self._attempts)

    def begin(self) -> None:
        """The next address is called now."""
        self._wall, self._elapsed = self._clock.wall(), self._clock.elapsed()

    def add(self, address: str, error: RemoteError | None = None) -> None:
        """``address`` gave the link, or failed; the error's text has it as its subject."""
        attempt = Attempt(
            address=address,
            answer=str(error)[:MAX_ANSWER_LENGTH] if error is not None else "",
            seconds=self._clock.elapsed() - self._elapsed,
            began=self._wall,
        )
        self._attempts.append(attempt)
        if self._refusal is None and isinstance(error, RemoteRefusalError):
            self._refusal = error

    def error(self) -> UserError | RemoteRefusalError:
        """The error to raise: a refusal where one refused, with what each address answered."""
        if not self._attempts:
            return FailureError("there is no address to call")
        text = "; ".join(map(str, self._attempts))
        return RemoteRefusalError(self._refusal.code, text) if self._refusal else FailureError(text)
