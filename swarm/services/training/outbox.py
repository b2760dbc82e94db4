"""What the device made, on its way to the links: bytes are coded in the executor, and sent in order (D8)."""

import asyncio
from collections import deque
from collections.abc import Callable

from swarm.compress.ladder import Encoded, TakenApart

Send = Callable[[Encoded], object]


class Outbox:
    """Codes and sends the boundary tensors of one stage, in the order in which they were posted.

    ``broken`` hears of an exception, after which nothing more is sent.
    """

    def __init__(self, broken: Callable[[BaseException], None]) -> None:
        self._broken = broken
        self._waiting: deque[tuple[asyncio.Future[Encoded], Send]] = deque()
        self._closed = False

    def post(self, apart: TakenApart, send: Send) -> None:
        """Call ``send`` with ``apart`` once its bytes are coded and all before it are sent."""
        if apart.plain is not None and not self._waiting:
            send(apart.plain)
            return
        coding = asyncio.get_running_loop().run_in_executor(None, apart.encode)
        self._waiting.append((coding, send))
        coding.add_done_callback(self._flush)

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        for coding, _ in self._waiting:
            coding.cancel()
        self._waiting.clear()

    def _flush(self, done: asyncio.Future[Encoded]) -> None:
        if done.cancelled() or self._closed:
            return
        failure = done.exception()
        if failure is not None:
            self.close()
            self._broken(failure)
            return
        while self._waiting and self._waiting[0][0].done():
            coding, send = self._waiting.popleft()
            send(coding.result())
