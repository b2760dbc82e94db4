"""What carries a link: a byte channel whose far end has proved which certificate it holds."""

from collections.abc import Callable
from typing import Protocol

from swarm.errors import RemoteError
from swarm.net.address import Address
from swarm.wire.frames import Buffer


class ByteChannel(Protocol):
    """A two-way stream of bytes. Only ``aclose`` waits; everything else does what it can now.

    ``wake`` is called whenever there may be something new: bytes to receive, room to send, or the end.
    """

    wake: Callable[[], None]
    dialed: bool
    """Whether this side made the connection."""
    ended: RemoteError | None
    """Why no more bytes come or go; None while they may. Bytes that came before can still be received."""
    unread: bool
    """Whether there may be bytes to receive, or the end."""
    writable: bool
    """Whether another frame may be sent now."""

    @property
    def remote(self) -> Address:
        """The address of the far end."""
        ...

    @property
    def certificate(self) -> bytes:
        """The certificate of the far end (DER), whose key it has proved to hold."""
        ...

    @property
    def unsent(self) -> int:
        """Bytes that were sent but wait in this program still."""
        ...

    def receive_into(self, buffer: memoryview) -> int:
        """Put received bytes at the start of ``buffer``; returns how many, 0 where none are there now."""
        ...

    def send(self, head: Buffer, body: Buffer) -> None:
        """Send ``head`` and then ``body``; both may be changed afterwards."""
        ...

    def limit_unsent(self, limit: int) -> None:
        """Ask the system to take no more than about ``limit`` bytes that it cannot transmit at once."""
        ...

    def limit_unread(self, limit: int) -> None:
        """Let no more than about ``limit`` bytes arrive that were not received, here and in the system."""
        ...

    async def aclose(self, seconds: float) -> None:
        """Let what was sent arrive, for at most ``seconds``, then end; returns when nothing is left of it."""
        ...

    def abort(self) -> None:
        """End at once."""
        ...
