"""Calling: one attempt with its deadlines, and the account of several that all failed."""

import asyncio
from typing import Final

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


class Answers:
    """What each address answered, while none gave a link."""

    def __init__(self) -> None:
        self._errors: dict[str, RemoteError] = {}

    def add(self, address: str, error: RemoteError) -> None:
        """``address`` failed; the error's text has it as its subject."""
        self._errors[address] = error

    def error(self) -> UserError | RemoteRefusalError:
        """The error to raise: a refusal where one refused, with what each address answered."""
        if not self._errors:
            return FailureError("there is no address to call")
        text = "; ".join(f"{address} {error}" for address, error in self._errors.items())
        for error in self._errors.values():
            if isinstance(error, RemoteRefusalError):
                return RemoteRefusalError(error.code, text)
        return FailureError(text)
